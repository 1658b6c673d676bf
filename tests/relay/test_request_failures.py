"""A request whose recipient fails ends at once, with the error that the recipient gave."""

from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import begun, events
from waypost import Envelope, Relay, RequestFailed, RequestTimedOut
from waypost.policy.redelivery import RedeliveryConfig
from waypost.testing import ManualClock


async def reasons(relay: Relay) -> list[str]:
    return [one.reason for one in await relay.dead_letters()]


async def test_a_handler_that_raises_fails_the_request_at_once(relay: Relay) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError("no such user")

    relay.subscribe("agent.a", fail)
    with pytest.raises(RequestFailed, match=r"agent\.a failed: ValueError: no such user") as caught:
        await relay.request("agent.a", None, sender="agent.b", timeout=3600)
    assert caught.value.error == "ValueError: no such user"
    assert [one.subject for one in relay.list_endpoints()] == ["agent.a"]


async def test_a_nack_with_an_error_fails_the_request_at_once(relay: Relay, data: Path) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=3600))
    [asked] = await relay.lease("agent.a")
    await relay.nack("agent.a", asked.id, error="out of memory")
    with pytest.raises(RequestFailed, match="out of memory"):
        await asking
    assert await reasons(relay) == ["request failed: out of memory"]
    assert events(data, "failed")[0]["via"] == "lease"


async def test_the_history_of_a_failed_request_has_its_error(relay: Relay) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=3600))
    [asked] = await relay.lease("agent.a")
    await relay.nack("agent.a", asked.id, error="out of memory")
    with pytest.raises(RequestFailed):
        await asking
    steps = (await relay.explain(asked.id)).steps
    assert steps[-1].text == "dead letter: request failed: out of memory"


@pytest.mark.parametrize("nack", [{}, {"error": "busy", "delay": 0.5}])
async def test_a_nack_that_wants_another_delivery_keeps_the_request_waiting(
    relay: Relay, clock: ManualClock, nack: dict[str, object]
) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=60))
    [asked] = await relay.lease("agent.a")
    await relay.nack("agent.a", asked.id, **nack)  # type: ignore[arg-type]
    clock.advance_ms(500)
    [again] = await relay.lease("agent.a")
    assert (again.id, again.attempt, asking.done()) == (asked.id, 2, False)
    await relay.publish(str(again.reply_to), "done", sender="agent.a", parent=again)
    assert (await asking).payload == "done"


async def test_when_the_asker_has_gone_a_failed_request_is_delivered_again(
    relay: Relay, clock: ManualClock
) -> None:
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=1))
    [asked] = await relay.lease("agent.a")
    clock.advance_ms(1_000)
    with pytest.raises(RequestTimedOut):
        await asking
    await relay.nack("agent.a", asked.id, error="too late")
    assert await reasons(relay) == []
    assert [one.id for one in await relay.lease("agent.a")] == [asked.id]


async def test_a_request_that_was_delivered_too_often_fails_without_a_word_of_the_relay(
    start: Start, clock: ManualClock
) -> None:
    once = RedeliveryConfig(max_deliveries=1)
    relay = await start(redelivery=once)
    relay.register_endpoint("agent.a")
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=3600))
    await relay.lease("agent.a")
    clock.advance_ms(30_000)
    with pytest.raises(RequestFailed) as caught:
        await asking
    assert (str(caught.value), caught.value.error) == ("agent.a failed the request", "")


async def test_a_request_to_several_fails_when_all_have_failed(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    asking = await begun(relay, relay.request("agent.*", None, sender="me", timeout=3600))
    for subject, error in (("agent.a", "first"), ("agent.c", "second")):
        assert not asking.done()
        [asked] = await relay.lease(subject)
        await relay.nack(subject, asked.id, error=error)
    with pytest.raises(RequestFailed, match="second"):
        await asking


async def test_a_message_with_the_same_id_from_another_sender_fails_no_request(
    relay: Relay,
) -> None:
    relay.register_endpoint("agent.c")
    asking = await begun(relay, relay.request("agent.a", None, sender="agent.b", timeout=3600))
    [asked] = await relay.lease("agent.a")
    await relay.publish("agent.c", None, sender="agent.x", message_id=asked.id)
    [other] = await relay.lease("agent.c")
    await relay.nack("agent.c", other.id, error="not yours")
    assert not asking.done()
    await relay.publish(str(asked.reply_to), "done", sender="agent.a", parent=asked)
    assert (await asking).payload == "done"
