"""Each delivery has a number: that of the attempt."""

from tests.relay.observing import payloads, send
from waypost import Envelope, Relay
from waypost.testing import ManualClock

MINUTE_MS = 60_000


async def attempts(relay: Relay) -> list[int]:
    return [one.attempt for one in await relay.lease("agent.a")]


async def test_leased_messages_say_how_often_they_were_delivered(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay)
    seen = []
    for _ in range(3):
        seen += await attempts(relay)
        await relay.nack("agent.a", sent.message_id)
        clock.advance_ms(MINUTE_MS)
    assert seen == [1, 2, 3]


async def test_a_delivery_without_a_verdict_is_no_attempt(relay: Relay) -> None:
    sent = await send(relay)
    for _ in range(3):
        assert await attempts(relay) == [1]
        relay.claims.release("agent.a", sent.message_id)


async def test_a_look_into_the_mailbox_shows_the_next_attempt(relay: Relay) -> None:
    sent = await send(relay)
    assert [one.attempt for one in await relay.peek("agent.a")] == [1]
    await relay.lease("agent.a")
    await relay.nack("agent.a", sent.message_id)
    assert [one.attempt for one in await relay.peek("agent.a")] == [2]


async def test_a_handler_of_a_redriven_message_sees_its_first_attempt(relay: Relay) -> None:
    seen: list[Envelope] = []

    def handle(envelope: Envelope) -> None:
        seen.append(envelope)
        if len(seen) == 1:
            raise ValueError

    await send(relay, "again")
    relay.subscribe("agent.a", handle)
    await relay.idle()
    [dead] = await relay.dead_letters()
    assert dead.envelope.attempt == 1
    await relay.redrive(dead.envelope.id)
    await relay.idle()
    assert payloads(seen) == ["again", "again"]
    assert [one.attempt for one in seen] == [1, 1]
