"""Attached consumers: unacknowledged messages return when they detach."""

from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import UNLIMITED, drafts, events, files, pending, send
from waypost import Relay, UnknownEndpoint
from waypost.relay.delivery.consumer import Consumer, Delivery
from waypost.relay.delivery.drafts import Draft
from waypost.relay.errors import MailboxTaken
from waypost.testing import ManualClock


@pytest.fixture
async def stocked(relay: Relay) -> Relay:
    """A relay with five pending messages, 0 to 4, for `agent.a`."""
    for number in range(5):
        await send(relay, number)
    return relay


def stay(relay: Relay, arrivals: list[None] | None = None) -> Consumer:
    calls = arrivals if arrivals is not None else []
    return relay.attach("agent.a", lambda: calls.append(None))


def numbers(handed: list[Delivery]) -> list[int]:
    return [int(bytes(one.envelope.payload)) for one in handed]


def ids(handed: list[Delivery]) -> list[str]:
    return [one.envelope.id for one in handed]


async def test_it_gets_messages_in_order(stocked: Relay) -> None:
    consumer = stay(stocked)
    assert consumer.pending() == 5
    assert numbers(consumer.take(3)) == [0, 1, 2]
    assert numbers(consumer.take(9)) == [3, 4]
    assert consumer.take(9) == []


async def test_a_mailbox_has_at_most_one_attached_consumer(stocked: Relay) -> None:
    first = stay(stocked)
    with pytest.raises(MailboxTaken, match=r"agent\.a"):
        stay(stocked)
    first.detach()
    assert numbers(stay(stocked).take(1)) == [0]


async def test_it_needs_a_mailbox(relay: Relay) -> None:
    with pytest.raises(UnknownEndpoint):
        relay.attach("agent.nobody", lambda: None)


async def test_a_consumer_is_notified_of_arrivals_once_they_are_durable(relay: Relay) -> None:
    arrivals: list[None] = []
    consumer = stay(relay, arrivals)
    await send(relay, 1)
    assert arrivals
    assert numbers(consumer.take(9)) == [1]


async def test_a_message_is_not_leased_before_it_is_on_disk(relay: Relay) -> None:
    consumer = stay(relay)
    relay.submit(Draft("agent.a", 1, sender="agent.b"))
    assert consumer.take(9) == []
    assert consumer.newest_order() > consumer.committed_seq()
    await relay.idle()
    assert consumer.newest_order() <= consumer.committed_seq()
    assert numbers(consumer.take(9)) == [1]


async def test_messages_in_flight_are_not_delivered_to_others(stocked: Relay) -> None:
    consumer = stay(stocked)
    held = consumer.take(2)
    assert [envelope.payload for envelope in await stocked.lease("agent.a")] == [2, 3, 4]
    assert len(consumer.ack(ids(held))) == 2


async def test_acknowledged_messages_are_removed_from_the_mailbox(stocked: Relay) -> None:
    consumer = stay(stocked)
    assert [one.id for one in consumer.ack(ids(consumer.take(5)))] != []
    assert (consumer.in_flight, pending(stocked)) == ({}, 0)
    assert stocked.metrics().total_messages == 0


async def test_confirming_again_gives_nothing(stocked: Relay) -> None:
    consumer = stay(stocked)
    got = ids(consumer.take(2))
    assert len(consumer.ack(got)) == 2
    assert consumer.ack([*got, "never-was"]) == []


async def test_messages_in_flight_return_to_their_positions_when_a_consumer_detaches(
    stocked: Relay,
) -> None:
    consumer = stay(stocked)
    held = consumer.take(4)
    consumer.ack(ids(held)[1:2])
    consumer.detach()
    consumer.detach()
    await stocked.idle()
    assert [envelope.payload for envelope in await stocked.lease("agent.a")] == [0, 2, 3, 4]


async def test_a_consumer_returns_only_its_messages_in_flight(stocked: Relay) -> None:
    consumer = stay(stocked)
    held = consumer.take(2)
    (other,) = await stocked.lease("agent.a", limit=1)
    assert len(consumer.nack([*ids(held), other.id, "never-was"], 0.0)) == 2
    await stocked.idle()
    assert numbers(consumer.take(9)) == [0, 1, 3, 4]


async def test_a_consumer_is_notified_when_the_delay_of_a_message_ends(
    stocked: Relay, clock: ManualClock
) -> None:
    arrivals: list[None] = []
    consumer = stay(stocked, arrivals)
    consumer.nack(ids(consumer.take(1)), 5.0)
    await stocked.idle()
    arrivals.clear()
    assert numbers(consumer.take(1)) == [1]
    clock.advance_ms(5_000)
    assert len(arrivals) == 1
    assert numbers(consumer.take(1)) == [0]


async def test_messages_above_the_size_limit_stay_queued(relay: Relay) -> None:
    await send(relay, "x" * 5_000)
    await send(relay, 1)
    consumer = stay(relay)
    assert numbers(consumer.take(9, max_size_bytes=1_000)) == [1]
    assert len(consumer.take(9)) == 1


async def test_enough_bytes_are_enough(relay: Relay) -> None:
    for _ in range(6):
        await send(relay, "x" * 1_000)
    consumer = stay(relay)
    (first,) = consumer.take(9, enough_bytes=1)
    assert len(consumer.take(9, enough_bytes=2 * first.size)) == 2
    assert len(consumer.take(9, enough_bytes=first.size + 1)) == 2  # the last one goes past it
    assert consumer.take(9, enough_bytes=0) == []


async def test_expired_messages_are_neither_counted_nor_delivered(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, 1, budget={"ttl": clock() // 1000 + 10})
    await send(relay, 2)
    clock.advance_ms(11)
    consumer = stay(relay)
    assert consumer.pending() == 1
    assert numbers(consumer.take(9)) == [2]


async def test_a_damaged_message_becomes_a_dead_letter_and_blocks_no_other(
    start: Start, data: Path
) -> None:
    relay = await start(storage="journal", rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3, payload="x" * 6_000))
    await send(relay, 4)
    relay = await start(storage="journal", rate_limit=UNLIMITED)
    for bodies in (data / "journal").glob("*.bodies"):
        bodies.write_bytes(bytes(len(bodies.read_bytes())))
    consumer = stay(relay)
    assert numbers(consumer.take(3)) == [4]
    assert len(await relay.dead_letters()) == 3


async def test_an_undeliverable_message_becomes_a_dead_letter(stocked: Relay) -> None:
    consumer = stay(stocked)
    (first,) = consumer.take(1)
    consumer.fail(first.envelope.id, "nobody can read this")
    (dead,) = await stocked.dead_letters()
    assert (dead.envelope.id, dead.reason) == (first.envelope.id, "nobody can read this")
    assert consumer.in_flight == {}


async def test_a_consumer_prunes_messages_that_others_acknowledged_or_returned(
    stocked: Relay,
) -> None:
    consumer = stay(stocked)
    first, second, third = ids(consumer.take(3))
    await stocked.ack("agent.a", first)
    await stocked.nack("agent.a", third)
    assert consumer.prune()
    assert not consumer.prune()
    assert list(consumer.in_flight) == [second]
    assert numbers(consumer.take(1)) == [2]


async def test_a_consumer_of_a_removed_mailbox_gets_no_messages(relay: Relay) -> None:
    consumer = stay(relay)
    relay.unregister_endpoint("agent.a")
    assert (consumer.pending(), consumer.newest_order(), consumer.take(9)) == (0, 0, [])
    assert (consumer.ack(["x"]), consumer.nack(["x"], 1.0)) == ([], [])
    relay.register_endpoint("agent.a")
    await send(relay, 1)
    assert numbers(consumer.take(9)) == [1]


async def test_a_consumer_that_raises_when_notified_does_not_stop_the_relay(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    def raises() -> None:
        raise ValueError("not now")

    relay.register_endpoint("agent.other")
    consumer = relay.attach("agent.a", raises)
    for number in range(3):
        await send(relay, number)
        await send(relay, number, to="agent.other")
    assert pending(relay, "agent.other") == 3
    assert "delivery to the consumer of agent.a failed" in caplog.text
    assert numbers(consumer.take(9)) == [0, 1, 2]


async def test_closing_the_relay_gives_everything_back(
    stocked: Relay, start: Start, data: Path
) -> None:
    consumer = stay(stocked)
    consumer.take(3)
    relay = await start()
    consumer.detach()
    assert [envelope.payload for envelope in await relay.lease("agent.a")] == list(range(5))
    returned = [event["reason"] for event in events(data, "returned")]
    assert returned == ["the relay stopped"] * 3


async def test_coming_and_going_are_written_down(relay: Relay, data: Path) -> None:
    stay(relay).detach()
    await relay.idle()
    assert [(one["subject"], one["action"]) for one in events(data, "session")] == [
        ("agent.a", "connected"),
        ("agent.a", "disconnected"),
    ]


async def test_the_journal_has_the_way_a_message_was_delivered(stocked: Relay, data: Path) -> None:
    consumer = stay(stocked)
    consumer.ack(ids(consumer.take(1)))
    await stocked.idle()
    (leased,), (acked,) = events(data, "leased"), events(data, "acked")
    assert (leased["via"], acked["via"]) == ("connection", "connection")
    assert leased.get("until_us", 0) == 0


async def test_messages_in_flight_are_in_cur(stocked: Relay) -> None:
    consumer = stay(stocked)
    held = consumer.take(2)
    await stocked.idle()
    endpoint = stocked.get_endpoint("agent.a")
    assert endpoint is not None
    assert files(endpoint)["cur"] == sorted(ids(held))
