"""Handlers: their order, their failures, and when they claim a message."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.observing import UNLIMITED, drafts, events, payloads, send
from waypost import Budget, Envelope, Relay, Settings
from waypost.relay import opening
from waypost.testing import ManualClock


async def test_messages_of_one_endpoint_arrive_in_order(relay: Relay) -> None:
    seen: list[int] = []
    relay.subscribe("agent.a", lambda envelope: seen.append(envelope.payload))
    await asyncio.gather(*(send(relay, number) for number in range(60)))
    await relay.idle()
    assert seen == list(range(60))


async def test_handlers_of_one_endpoint_run_one_after_another(relay: Relay) -> None:
    at_work = 0
    most = 0

    async def work(envelope: Envelope) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(5):
            await asyncio.sleep(0)
        at_work -= 1

    relay.subscribe("agent.a", work)
    await relay.publish_many(drafts(20))
    await relay.idle()
    assert most == 1


async def test_handlers_of_different_endpoints_run_at_the_same_time(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    both = asyncio.Barrier(2)

    async def meet(envelope: Envelope) -> None:
        await asyncio.wait_for(both.wait(), 60)

    relay.subscribe("agent.*", meet)
    await send(relay, to="agent.*")
    await relay.idle()
    assert await relay.dead_letters() == []


async def test_sync_and_async_handlers_may_share_a_message(relay: Relay) -> None:
    seen: list[str] = []

    async def later(envelope: Envelope) -> None:
        await asyncio.sleep(0)
        seen.append("async")

    relay.subscribe("agent.a", later)
    relay.subscribe("agent.>", lambda envelope: seen.append("sync"))
    await send(relay)
    await relay.idle()
    assert seen == ["async", "sync"]


async def test_each_handler_gets_a_payload_of_its_own(relay: Relay) -> None:
    seen: list[object] = []

    def spoil(envelope: Envelope) -> None:
        envelope.payload.append("spoilt")

    relay.subscribe("agent.a", spoil)
    relay.subscribe("agent.a", lambda envelope: seen.append(envelope.payload))
    await send(relay, ["whole"])
    await relay.idle()
    assert seen == [["whole"]]


async def test_a_message_whose_handlers_succeed_is_removed(relay: Relay) -> None:
    relay.subscribe("agent.a", lambda envelope: None)
    await send(relay)
    await relay.idle()
    assert relay.metrics().total_messages == 0


async def test_a_failing_handler_makes_a_dead_letter_with_its_reason(relay: Relay) -> None:
    def fail(envelope: Envelope) -> None:
        raise RuntimeError("no paper")

    relay.subscribe("agent.a", fail)
    await send(relay, "print this")
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "handler failed: RuntimeError: no paper"
    assert dead_letter.envelope.payload == "print this"


async def test_a_raising_handler_does_not_affect_other_handlers(relay: Relay) -> None:
    seen: list[object] = []

    async def fail(envelope: Envelope) -> None:
        raise ValueError("first")

    relay.subscribe("agent.a", fail)
    relay.subscribe("agent.a", seen.append)
    await send(relay)
    await relay.idle()
    assert len(seen) == 1


async def test_the_reasons_of_all_raising_handlers_are_kept(relay: Relay) -> None:
    def fail_with(text: str) -> Callable[[Envelope], None]:
        def fail(envelope: Envelope) -> None:
            raise ValueError(text)

        return fail

    relay.subscribe("agent.a", fail_with("one"))
    relay.subscribe("agent.a", fail_with("two"))
    await send(relay)
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "handler failed: ValueError: one; ValueError: two"


async def test_a_raising_handler_does_not_stop_later_messages(relay: Relay) -> None:
    seen: list[int] = []

    def odd_ones_only(envelope: Envelope) -> None:
        if envelope.payload % 2 == 0:
            raise ValueError("even")
        seen.append(envelope.payload)

    relay.subscribe("agent.a", odd_ones_only)
    for number in range(6):
        await send(relay, number)
    await relay.idle()
    assert seen == [1, 3, 5]


async def test_a_handler_whose_own_task_was_cancelled_counts_as_failed(relay: Relay) -> None:
    seen: list[int] = []

    async def give_up_at_first(envelope: Envelope) -> None:
        seen.append(envelope.payload)
        if envelope.payload == 0:
            raise asyncio.CancelledError

    await asyncio.gather(*(send(relay, number) for number in range(3)))
    relay.subscribe("agent.a", give_up_at_first)
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert seen == [0, 1, 2]
    assert dead_letter.reason == "handler failed: CancelledError"


async def test_a_late_subscriber_gets_pending_messages(relay: Relay) -> None:
    for number in range(3):
        await send(relay, number)
    seen: list[int] = []
    relay.subscribe("agent.a", lambda envelope: seen.append(envelope.payload))
    await relay.idle()
    assert seen == [0, 1, 2]


async def test_a_subscriber_older_than_the_endpoint_gets_its_messages(start) -> None:
    relay = await start()
    seen: list[object] = []
    relay.subscribe("agent.>", seen.append)
    relay.register_endpoint("agent.new")
    await send(relay, to="agent.new")
    await relay.idle()
    assert len(seen) == 1


async def test_after_unsubscribing_messages_wait(relay: Relay) -> None:
    seen: list[object] = []
    stop = relay.subscribe("agent.a", seen.append)
    stop()
    await send(relay, "waits")
    await relay.idle()
    assert seen == []
    assert payloads(await relay.lease("agent.a")) == ["waits"]


async def test_unsubscribing_twice_is_harmless(relay: Relay) -> None:
    stop = relay.subscribe("agent.a", print)
    other = relay.subscribe("agent.a", lambda envelope: None)
    stop()
    stop()
    assert len(relay.list_subscriptions()) == 1
    other()


async def test_a_handler_that_unsubscribes_itself_leaves_the_rest_in_order(relay: Relay) -> None:
    seen: list[int] = []

    def once(envelope: Envelope) -> None:
        seen.append(envelope.payload)
        stop()

    for number in range(4):
        await send(relay, number)
    stop = relay.subscribe("agent.a", once)
    await relay.idle()
    assert seen == [0]
    assert payloads(await relay.lease("agent.a")) == [1, 2, 3]


async def test_a_follow_up_inherits_the_budget_as_it_was_delivered(relay: Relay) -> None:
    relay.register_endpoint("agent.c")

    async def forward(envelope: Envelope) -> None:
        await send(relay, "next", to="agent.c", sender="agent.a", parent=envelope)

    relay.subscribe("agent.a", forward)
    await send(relay, budget={"max_hops": 3, "call_budget_remaining": 7})
    await relay.idle()
    (follow_up,) = await relay.lease("agent.c")
    assert follow_up.budget.ancestor_chain == ("agent.a", "agent.c")
    assert (follow_up.budget.hop_count, follow_up.budget.max_hops) == (2, 3)
    assert follow_up.budget.call_budget_remaining == 5


async def test_a_follow_up_names_its_parent_in_the_journal(relay: Relay, data: Path) -> None:
    first = await send(relay)
    (envelope,) = await relay.lease("agent.a")
    second = await send(relay, to="agent.nobody", parent=envelope)
    relay.register_endpoint("agent.c")
    third = await send(relay, to="agent.c", parent=envelope)
    found = {event["id"]: event.get("parent") for event in events(data, "accepted")}
    assert found[third.message_id] == first.message_id
    assert second.delivered_to == 0


async def test_three_agents_in_a_ring_stop_at_the_cycle(relay: Relay) -> None:
    following = {"agent.a": "agent.c", "agent.c": "agent.d", "agent.d": "agent.a"}
    for subject in following:
        relay.register_endpoint(subject)

    async def forward(envelope: Envelope) -> None:
        me = envelope.subject
        await send(relay, to=following[me], sender=me, parent=envelope)

    relay.subscribe("agent.*", forward)
    await send(relay)
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "cycle detected: agent.a already in chain"
    assert dead_letter.envelope.budget.ancestor_chain[:3] == tuple(following)


async def test_a_chain_through_many_agents_stops_at_the_last_hop(relay: Relay) -> None:
    for number in range(8):
        relay.register_endpoint(f"chain.{number}")

    async def pass_on(envelope: Envelope) -> None:
        number = int(envelope.subject.split(".")[1])
        await send(relay, to=f"chain.{number + 1}", sender=envelope.subject, parent=envelope)

    relay.subscribe("chain.*", pass_on)
    await send(relay, to="chain.0")
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.endpoint == "chain.5"
    assert dead_letter.reason == "max hops exceeded (5/5)"


async def test_a_chain_stops_when_its_calls_are_used_up(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    await send(relay, budget={"call_budget_remaining": 1})
    (envelope,) = await relay.lease("agent.a")
    await send(relay, to="agent.c", parent=envelope)
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "call budget exhausted"


@pytest.mark.parametrize(
    "wish",
    [
        {"max_hops": 100},
        {"ttl": 1 << 50},
        {"call_budget_remaining": 1000},
        {"hop_count": 0, "ancestor_chain": []},
    ],
)
async def test_a_caller_cannot_raise_its_budget(
    relay: Relay, clock: ManualClock, wish: dict[str, object]
) -> None:
    relay.register_endpoint("agent.c")
    await send(relay)
    (parent,) = await relay.lease("agent.a")
    await send(relay, to="agent.c", parent=parent, budget=wish)
    (child,) = await relay.lease("agent.c")
    assert child.budget == Budget(
        hop_count=2,
        max_hops=5,
        ancestor_chain=("agent.a", "agent.c"),
        ttl=parent.budget.ttl,
        call_budget_remaining=8,
    )


async def test_a_pattern_of_an_earlier_run_never_claims_a_message(start, data: Path) -> None:
    first = await start()
    first.register_endpoint("agent.a")
    first.subscribe("agent.>", print)
    again = await start()
    await send(again, "still here")
    await again.idle()
    assert json.loads((data / "subscriptions.json").read_text())[0]["pattern"] == "agent.>"
    assert payloads(await again.lease("agent.a")) == ["still here"]


async def test_closing_waits_for_running_handlers(relay: Relay, start) -> None:
    began, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(envelope: Envelope) -> None:
        began.set()
        await may_end.wait()
        ended.set()

    relay.subscribe("agent.a", work)
    await send(relay)
    await began.wait()
    closing = asyncio.create_task(relay.close())
    may_end.set()
    await closing
    assert ended.is_set()
    assert (await start()).metrics().total_messages == 0


async def test_closing_cancels_a_handler_that_will_not_end_and_keeps_the_rest(
    relay: Relay, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "HANDLER_GRACE_S", 0.0)
    began = asyncio.Event()

    async def hang(envelope: Envelope) -> None:
        began.set()
        await asyncio.Event().wait()

    for number in range(3):
        await send(relay, number)
    relay.subscribe("agent.a", hang)
    await began.wait()
    again = await start()
    (dead_letter,) = await again.dead_letters()
    assert dead_letter.reason == "interrupted: the relay was closed while it ran"
    assert payloads(await again.lease("agent.a")) == [1, 2]


async def test_a_handler_gets_only_durable_messages(data: Path) -> None:
    settings = Settings(watch_files=False, rate_limit=UNLIMITED)
    async with Relay(data, settings=settings, clock=ManualClock()) as relay:
        relay.register_endpoint("agent.a")
        known: list[bool] = []

        def look(envelope: Envelope) -> None:
            stored = {event["id"] for event in events(data, "accepted")}
            claimed = {event["id"] for event in events(data, "leased")}
            known.append(envelope.id in stored and envelope.id in claimed)

        relay.subscribe("agent.a", look)
        await relay.publish_many(drafts(20))
        await relay.idle()
    assert known == [True] * 20
