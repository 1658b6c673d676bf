"""Request and reply."""

import asyncio
from pathlib import Path

import pytest

from tests.relay.observing import begun, events, send
from waypost import (
    AccessDenied,
    AccessRule,
    BackpressureConfig,
    Envelope,
    Reason,
    Relay,
    RequestRejected,
    RequestTimedOut,
)
from waypost.testing import ManualClock


def answering(relay: Relay, subject: str = "agent.a") -> None:
    async def answer(envelope: Envelope) -> None:
        assert envelope.reply_to is not None
        reply = {"answer to": envelope.payload}
        await send(relay, reply, to=envelope.reply_to, sender=subject, parent=envelope)

    relay.subscribe(subject, answer)


async def test_a_request_gets_its_reply(relay: Relay) -> None:
    answering(relay)
    reply = await relay.request("agent.a", "question", sender="agent.b")
    assert reply.payload == {"answer to": "question"}
    assert reply.sender == "agent.a"


async def test_requests_at_the_same_time_get_each_their_own_reply(relay: Relay) -> None:
    answering(relay)
    asked = (relay.request("agent.a", number, sender="agent.b") for number in range(20))
    replies = await asyncio.gather(*asked)
    assert [reply.payload["answer to"] for reply in replies] == list(range(20))


async def test_the_first_of_several_replies_counts(relay: Relay) -> None:
    async def answer_twice(envelope: Envelope) -> None:
        assert envelope.reply_to is not None
        await relay.publish_many(
            {"subject": envelope.reply_to, "payload": text, "sender": "agent.a"}
            for text in ("first", "second")
        )

    relay.subscribe("agent.a", answer_twice)
    reply = await relay.request("agent.a", None, sender="agent.b")
    assert reply.payload == "first"


async def test_a_reply_spends_the_budget_of_its_request(relay: Relay) -> None:
    answering(relay)
    reply = await relay.request(
        "agent.a", None, sender="agent.b", budget={"call_budget_remaining": 4}
    )
    assert reply.budget.hop_count == 0
    assert reply.budget.ancestor_chain == ()
    assert reply.budget.call_budget_remaining == 2


async def test_a_request_within_a_request_inherits_its_budget(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    answering(relay, "agent.c")

    async def ask_on(envelope: Envelope) -> None:
        assert envelope.reply_to is not None
        inner = await relay.request("agent.c", None, sender="agent.a", parent=envelope)
        left = (inner.budget.hop_count, inner.budget.call_budget_remaining)
        await send(relay, left, to=envelope.reply_to, sender="agent.a")

    relay.subscribe("agent.a", ask_on)
    reply = await relay.request("agent.a", None, sender="agent.b")
    assert reply.payload == [1, 7]


async def test_without_a_reply_a_request_ends_on_time(relay: Relay, clock: ManualClock) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=2.0))
    clock.advance_ms(1_999)
    await asyncio.sleep(0)
    assert not asking.done()
    clock.advance_ms(1)
    with pytest.raises(RequestTimedOut, match=r"agent\.a within 2 s"):
        await asking


async def test_a_request_without_a_reply_raises_a_timeout_error(
    relay: Relay, clock: ManualClock
) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=1))
    clock.advance_ms(1_000)
    with pytest.raises(TimeoutError):
        await asking


async def test_a_request_without_a_recipient_is_rejected(relay: Relay) -> None:
    with pytest.raises(RequestRejected, match=r"agent\.nobody.*no such endpoint"):
        await relay.request("agent.nobody", None, sender="agent.b")


async def test_the_error_of_a_rejected_request_has_the_publish_result(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    with pytest.raises(RequestRejected, match="backpressure") as caught:
        await relay.request("agent.a", None, sender="agent.b")
    assert caught.value.result.rejected[0].reason is Reason.BACKPRESSURE


async def test_a_request_that_rules_deny_is_denied(relay: Relay) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    with pytest.raises(AccessDenied):
        await relay.request("agent.a", None, sender="agent.b")


@pytest.mark.parametrize("target", ["agent.a", "agent.nobody"])
async def test_no_request_leaves_anything_behind(relay: Relay, data: Path, target: str) -> None:
    answering(relay)
    subscriptions = relay.list_subscriptions()
    try:
        await relay.request(target, None, sender="agent.b")
    except RequestRejected:
        assert target == "agent.nobody"
    await relay.idle()
    assert [one.subject for one in relay.list_endpoints()] == ["agent.a"]
    assert relay.list_subscriptions() == subscriptions
    assert len(list((data / "mailboxes").iterdir())) == 1
    assert len(events(data, "endpoint")) == 3


async def test_a_broadcast_is_not_taken_for_a_reply(data: Path) -> None:
    async with Relay(data) as relay:
        relay.register_endpoint("agent.slow")
        asked = asyncio.ensure_future(
            relay.request("agent.slow", "?", sender="agent.me", timeout=60)
        )
        (question,) = await relay.lease("agent.slow", wait=5)
        shouted = await relay.publish(">", "hear ye", sender="agent.crier")
        assert shouted.delivered_to == 1
        await relay.publish(question.reply_to, "!", sender="agent.slow", parent=question)
        assert (await asked).payload == "!"


async def test_a_cancelled_request_leaves_nothing_behind(relay: Relay) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b"))
    assert len(relay.list_endpoints()) == 2
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [one.subject for one in relay.list_endpoints()] == ["agent.a"]
    assert relay.list_subscriptions() == []


async def test_a_late_reply_has_no_recipient(relay: Relay, clock: ManualClock) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=1))
    (request,) = await relay.lease("agent.a")
    clock.advance_ms(1_000)
    with pytest.raises(RequestTimedOut):
        await asking
    assert request.reply_to is not None
    assert (await send(relay, to=request.reply_to, sender="agent.a")).delivered_to == 0


async def test_a_request_cut_off_by_a_crash_leaves_no_endpoint_behind(data: Path) -> None:
    async with Relay(data) as relay:
        relay.register_endpoint("_reply.0123456789abcdef01234567")
        relay.register_endpoint("agent.a")
    async with Relay(data) as again:
        assert [endpoint.subject for endpoint in again.list_endpoints()] == ["agent.a"]
