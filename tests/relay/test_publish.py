"""One publish: its result, the stored messages, and the order of checks."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.relay.observing import UNLIMITED, drafts, events, files, payloads, reasons, send
from waypost import (
    AccessDenied,
    AccessRule,
    BackpressureConfig,
    BudgetCut,
    CircuitBreakerConfig,
    Draft,
    Envelope,
    InvalidInput,
    InvalidMessage,
    RateLimitConfig,
    Reason,
    Relay,
)
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant


async def test_a_subscriber_receives_a_published_message(relay: Relay) -> None:
    received: list[Envelope] = []
    relay.subscribe("agent.*", received.append)
    await send(relay, {"hello": "there"})
    await relay.idle()
    assert payloads(received) == [{"hello": "there"}]


async def test_an_envelope_has_sender_subject_payload_and_time(
    relay: Relay, clock: ManualClock
) -> None:
    result = await send(relay, [1, 2], reply_to="agent.b.inbox")
    (envelope,) = await relay.lease("agent.a")
    assert envelope.id == result.message_id
    assert (envelope.subject, envelope.sender) == ("agent.a", "agent.b")
    assert envelope.reply_to == "agent.b.inbox"
    assert envelope.created_at == instant(clock())
    assert envelope.payload == [1, 2]


async def test_the_budget_is_charged_with_the_delivery(relay: Relay, clock: ManualClock) -> None:
    await send(relay)
    (envelope,) = await relay.lease("agent.a")
    assert envelope.budget.hop_count == 1
    assert envelope.budget.max_hops == 5
    assert envelope.budget.ancestor_chain == ("agent.a",)
    assert envelope.budget.ttl == clock() // 1000 + 3_600_000
    assert envelope.budget.call_budget_remaining == 9


async def test_a_publish_without_recipients_is_not_an_error(relay: Relay) -> None:
    result = await send(relay, to="agent.nobody")
    assert result.message_id
    assert (result.delivered_to, result.rejected) == (0, [])


async def test_a_pattern_reaches_every_endpoint_it_covers_under_one_id(relay: Relay) -> None:
    relay.register_endpoint("agent.b.deep")
    relay.register_endpoint("other.c")
    result = await send(relay, to="agent.>")
    got = [await relay.lease(one.subject) for one in relay.list_endpoints()]
    assert result.delivered_to == 2
    assert [[envelope.id for envelope in one] for one in got] == [
        [result.message_id],
        [result.message_id],
        [],
    ]


async def test_a_fan_out_is_one_row_for_each_endpoint(relay: Relay, data: Path) -> None:
    relay.register_endpoint("agent.b")
    result = await send(relay, to="agent.*")
    rows = events(data, "accepted")
    assert [(row["id"], row["endpoint"], row.get("part", 0), row["parts"]) for row in rows] == [
        (result.message_id, "agent.a", 0, 2),
        (result.message_id, "agent.b", 1, 2),
    ]


async def test_each_recipient_of_a_fan_out_has_its_own_chain(relay: Relay) -> None:
    relay.register_endpoint("agent.b")
    await send(relay, to="agent.*")
    (one,), (other,) = await relay.lease("agent.a"), await relay.lease("agent.b")
    assert one.budget.ancestor_chain == ("agent.a",)
    assert other.budget.ancestor_chain == ("agent.b",)


async def test_acknowledging_one_copy_does_not_affect_the_others(relay: Relay) -> None:
    relay.register_endpoint("agent.b")
    result = await send(relay, to="agent.*")
    await relay.ack("agent.a", result.message_id)
    assert len(await relay.lease("agent.b")) == 1


async def test_an_expired_message_is_rejected_and_a_dead_letter(
    relay: Relay, clock: ManualClock
) -> None:
    result = await send(relay, "late", budget={"ttl": clock() // 1000 - 1})
    (dead_letter,) = await relay.dead_letters()
    assert (result.delivered_to, reasons(result)) == (0, [Reason.BUDGET_EXCEEDED])
    assert dead_letter.reason == "message expired (TTL)"
    assert (dead_letter.envelope.id, dead_letter.envelope.payload) == (result.message_id, "late")


async def test_a_message_at_the_very_end_of_its_time_is_still_taken(
    relay: Relay, clock: ManualClock
) -> None:
    result = await send(relay, budget={"ttl": clock() // 1000})
    assert result.delivered_to == 1


async def test_a_deny_rule_stops_a_publish(relay: Relay) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    with pytest.raises(AccessDenied, match=r"agent\.b.*agent\.a"):
        await send(relay)
    assert await relay.lease("agent.a") == []
    assert await relay.dead_letters() == []


async def test_a_deny_rule_also_applies_to_a_publish_to_a_pattern(relay: Relay) -> None:
    relay.register_endpoint("agent.secret")
    relay.access.add_rule(AccessRule(">", "agent.secret", "deny"))
    result = await send(relay, to="agent.>")
    assert result.delivered_to == 1
    assert await relay.lease("agent.secret") == []


async def test_a_pattern_whose_endpoints_are_all_denied_is_denied(relay: Relay) -> None:
    relay.access.add_rule(AccessRule(">", "agent.a", "deny"))
    with pytest.raises(AccessDenied):
        await send(relay, to="agent.>")


async def test_a_denied_publish_does_not_count_towards_the_rate_limit(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    with pytest.raises(AccessDenied):
        await send(relay)
    relay.access.remove_rule("agent.b", "agent.a")
    assert (await send(relay)).delivered_to == 1


async def test_a_rate_limited_publish_has_no_id_and_has_a_retry_time(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=2, window_secs=60))
    relay.register_endpoint("agent.a")
    await send(relay)
    clock.advance_ms(1000)
    await send(relay)
    result = await send(relay)
    assert (result.message_id, result.delivered_to) == ("", 0)
    assert [(one.endpoint_hash, one.reason) for one in result.rejected] == [("", "rate_limited")]
    assert result.retry_after_ms == 59_000


async def test_a_rate_limited_sender_may_publish_after_the_retry_time(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    wait_ms = (await send(relay)).retry_after_ms
    clock.advance_ms(wait_ms - 1)
    early = await send(relay)
    clock.advance_ms(1)
    assert reasons(early) == [Reason.RATE_LIMITED]
    assert (await send(relay)).delivered_to == 1


async def test_a_rate_limited_publish_is_neither_stored_nor_a_dead_letter(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    endpoint = relay.register_endpoint("agent.a")
    await send(relay)
    await send(relay)
    await relay.idle()
    assert len(files(endpoint)["new"]) == 1
    assert await relay.dead_letters() == []


async def test_a_fan_out_counts_once_towards_the_rate_limit(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=2))
    for number in range(5):
        relay.register_endpoint(f"agent.{number}")
    results = [await send(relay, to="agent.*") for _ in range(3)]
    assert [result.delivered_to for result in results] == [5, 5, 0]


async def test_senders_have_windows_of_their_own(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    results = [await send(relay, sender=name) for name in ("agent.x", "agent.y")]
    assert [result.delivered_to for result in results] == [1, 1]


async def test_a_publish_without_recipients_counts_towards_the_rate_limit(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await send(relay, to="agent.nobody")
    assert reasons(await send(relay, to="agent.nobody")) == [Reason.RATE_LIMITED]


async def test_some_endpoints_reject_while_others_take_the_message(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    full = relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.c")
    await send(relay)
    result = await send(relay, to="agent.*")
    assert result.delivered_to == 1
    assert [(one.endpoint_hash, one.reason) for one in result.rejected] == [
        (full.hash, Reason.BACKPRESSURE)
    ]


async def test_a_result_has_the_pressure_of_every_endpoint(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=4))
    one, other = relay.register_endpoint("agent.a"), relay.register_endpoint("agent.c")
    await send(relay)
    result = await send(relay, to="agent.*")
    assert result.mailbox_pressure == {one.hash: 0.25, other.hash: 0.0}


async def test_with_every_limit_off_publishing_works(start) -> None:
    relay = await start(
        rate_limit=UNLIMITED,
        circuit_breaker=CircuitBreakerConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False, max_mailbox_size=1),
    )
    relay.register_endpoint("agent.a")
    results = await relay.publish_many(drafts(150))
    assert sum(result.delivered_to for result in results) == 150
    assert results[-1].rejected == []
    assert results[-1].mailbox_pressure == {}


async def test_the_budget_is_enforced_after_the_other_checks_passed(relay: Relay) -> None:
    result = await send(relay, budget={"call_budget_remaining": 0})
    (dead_letter,) = await relay.dead_letters()
    assert reasons(result) == [Reason.BUDGET_EXCEEDED]
    assert dead_letter.reason == "call budget exhausted"


async def test_a_full_mailbox_is_reported_before_an_empty_budget(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    result = await send(relay, budget={"call_budget_remaining": 0})
    assert reasons(result) == [Reason.BACKPRESSURE]
    assert await relay.dead_letters() == []


async def test_many_messages_become_durable_with_one_commit(relay: Relay) -> None:
    await relay.idle()
    before = relay.metrics().commits
    await relay.publish_many(drafts(50))
    assert relay.metrics().commits == before + 1


async def test_the_results_of_many_come_in_the_order_given(relay: Relay) -> None:
    results = await relay.publish_many(
        [
            Draft("agent.a", "first", sender="agent.b"),
            {"subject": "agent.nobody", "payload": 2, "sender": "agent.b"},
            {"subject": "agent.a", "payload": "third", "sender": "agent.b", "reply_to": "agent.b"},
        ]
    )
    assert [result.delivered_to for result in results] == [1, 0, 1]
    got = await relay.lease("agent.a")
    assert [(one.payload, one.reply_to) for one in got] == [("first", None), ("third", "agent.b")]


async def test_among_many_a_forbidden_one_is_rejected_and_the_rest_go_through(
    relay: Relay,
) -> None:
    relay.register_endpoint("agent.secret")
    relay.access.add_rule(AccessRule(">", "agent.secret", "deny"))
    results = await relay.publish_many([*drafts(1, to="agent.secret"), *drafts(1)])
    assert reasons(results[0]) == [Reason.ACCESS_DENIED]
    assert results[1].delivered_to == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"subject": "not a subject", "payload": 1, "sender": "agent.b"},
        {"subject": "agent.a", "payload": b"bytes", "sender": "agent.b"},
        {"subject": "agent.a", "payload": 1, "sender": "agent.b", "budget": {"ttl": "soon"}},
        {"subject": "agent.a", "payload": 1, "sender": "agent.b", "message_id": "../x"},
        {"subject": "agent.a", "payload": 1},
        {"subject": "agent.a", "payload": 1, "sender": "agent.b", "colour": "red"},
    ],
)
async def test_one_invalid_message_among_many_fails_them_all_up_front(
    relay: Relay, bad: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput):
        await relay.publish_many([*drafts(1), bad])
    await relay.idle()
    assert await relay.lease("agent.a") == []


async def test_no_more_than_ten_thousand_are_published_at_once(relay: Relay) -> None:
    with pytest.raises(InvalidInput, match="10,000"):
        await relay.publish_many(drafts(10_001))


async def test_a_payload_as_large_as_allowed_is_taken_and_one_byte_more_is_not(start) -> None:
    relay = await start(max_payload_bytes=12)
    relay.register_endpoint("agent.a")
    assert (await send(relay, "x" * 10)).delivered_to == 1  # ten characters and two quotes
    with pytest.raises(InvalidMessage, match=r"13 bytes.*max_payload_bytes"):
        await send(relay, "x" * 11)


async def test_one_cancelled_publisher_does_not_cancel_others(relay: Relay) -> None:
    impatient = asyncio.ensure_future(send(relay, "impatient"))
    patient = asyncio.ensure_future(send(relay, "patient"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).delivered_to == 1
    await relay.idle()
    assert payloads(await relay.lease("agent.a")) == ["impatient", "patient"]


async def test_a_reply_address_must_be_one_that_the_sender_may_publish_to(relay: Relay) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.secret", "deny"))
    with pytest.raises(AccessDenied, match=r"name agent\.secret as the reply address"):
        await send(relay, reply_to="agent.secret")
    for allowed in ("agent.b", "agent.c", None):
        assert (await send(relay, reply_to=allowed)).delivered_to == 1


async def test_a_request_needs_no_rule_for_its_own_reply_address(relay: Relay) -> None:
    relay.access.add_rule(AccessRule("agent.b", "_reply.>", "deny"))

    async def answer(question: Envelope) -> None:
        assert question.reply_to is not None
        await relay.publish(question.reply_to, "here", sender="agent.a")

    relay.subscribe("agent.a", answer)
    assert (await relay.request("agent.a", "where?", sender="agent.b")).payload == "here"


# A wish for a larger budget


async def test_a_wish_for_a_larger_budget_is_cut_and_the_result_has_what_was_granted(
    relay: Relay, clock: ManualClock
) -> None:
    now_ms = clock() // 1000
    wish = {"max_hops": 99, "ttl": now_ms + 2 * 3_600_000, "call_budget_remaining": 3}
    result = await send(relay, budget=wish)
    assert result.budget_cut == BudgetCut(max_hops=5, ttl=now_ms + 3_600_000)
    [envelope] = await relay.lease("agent.a")
    assert (envelope.budget.max_hops, envelope.budget.ttl) == (5, now_ms + 3_600_000)


async def test_a_follow_up_learns_what_its_parent_left(relay: Relay) -> None:
    await send(relay, budget={"call_budget_remaining": 4})
    [parent] = await relay.lease("agent.a")
    relay.register_endpoint("agent.c")
    wish = {"call_budget_remaining": 4, "hop_count": 0}
    result = await relay.publish("agent.c", 1, sender="agent.a", parent=parent, budget=wish)
    assert result.budget_cut == BudgetCut(call_budget_remaining=3, hop_count=1)


@pytest.mark.parametrize("wish", [None, {}, {"max_hops": 5}, {"call_budget_remaining": 1}])
async def test_a_budget_that_was_granted_is_not_mentioned(relay: Relay, wish: Any) -> None:
    result = await send(relay, budget=wish)
    assert not result.budget_cut
    assert b"budget_cut" not in msgspec.json.encode(result)


async def test_a_repeated_publish_returns_what_was_cut_at_first(
    relay: Relay, clock: ManualClock, start
) -> None:
    wish = {"max_hops": 9, "ttl": clock() // 1000 + 10**10}
    first = await send(relay, message_id="again", budget=wish)
    assert first.budget_cut
    clock.advance_ms(1000)
    assert (await send(relay, message_id="again", budget=wish)).budget_cut == first.budget_cut
    restarted = await start()
    again = await send(restarted, message_id="again", budget=wish)
    assert again.budget_cut == first.budget_cut
