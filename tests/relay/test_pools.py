"""Pools: consumers that share a mailbox, and which of them gets a message."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import UNLIMITED, events, pending, send
from waypost import RedeliveryConfig, Relay
from waypost.relay.delivery.consumer import Consumer, Delivery
from waypost.relay.errors import MailboxTaken, PoolFull
from waypost.testing import ManualClock


class Worker:
    """A worker that takes messages while it has fewer than `room`; `got` are their numbers."""

    def __init__(self, relay: Relay, room: int = 1) -> None:
        self.room = room
        self.got: list[int] = []
        self.ids: list[str] = []
        self.consumer: Consumer = relay.attach("agent.a", self.fill, shared=True)
        self.fill()

    def fill(self) -> None:
        while len(self.consumer.in_flight) < self.room:
            taken = self.consumer.take(self.room - len(self.consumer.in_flight))
            if not taken:
                return
            self._add(taken)

    def take_answers(self) -> list[int]:
        self._add(answers := self.consumer.take_answers(9))
        return [_number(one) for one in answers]

    def finish(self) -> None:
        """Acknowledge the oldest message, and take the next."""
        self.consumer.ack([next(iter(self.consumer.in_flight))])
        self.fill()

    def _add(self, taken: list[Delivery]) -> None:
        self.got += [_number(one) for one in taken]
        self.ids += [one.envelope.id for one in taken]


def _number(one: Delivery) -> int:
    return int(bytes(one.envelope.payload))


Join = Callable[..., Worker]


@pytest.fixture
async def relay(start: Start) -> Relay:
    opened = await start(rate_limit=UNLIMITED, redelivery=RedeliveryConfig(first_delay_ms=1000))
    opened.register_endpoint("agent.a")
    return opened


@pytest.fixture
def join(relay: Relay) -> Join:
    return lambda room=1: Worker(relay, room)


async def publish(relay: Relay, count: int, first: int = 0) -> None:
    """Publish numbers in one commit."""
    numbers = range(first, first + count)
    await relay.publish_many(
        [{"subject": "agent.a", "payload": one, "sender": "agent.b"} for one in numbers]
    )
    await relay.idle()


async def test_messages_that_arrive_together_are_delivered_in_turns(
    relay: Relay, join: Join
) -> None:
    workers = [join(room=10) for _ in range(3)]
    await publish(relay, 7)
    assert [one.got for one in workers] == [[0, 3, 6], [1, 4], [2, 5]]


async def test_a_pool_takes_as_many_as_it_has_room_for(relay: Relay, join: Join) -> None:
    workers = [join(room=200) for _ in range(2)]
    await publish(relay, 400)
    assert [len(one.got) for one in workers] == [200, 200]
    assert workers[0].got == list(range(0, 400, 2))


async def test_the_worker_with_the_fewest_in_flight_is_next(relay: Relay, join: Join) -> None:
    busy = join(room=10)
    await publish(relay, 3)
    idle = join(room=10)
    await publish(relay, 2, first=3)
    assert (busy.got, idle.got) == ([0, 1, 2], [3, 4])


async def test_among_equals_the_worker_that_has_waited_longest_is_next(
    relay: Relay, join: Join
) -> None:
    workers = [join() for _ in range(3)]
    for number in range(6):
        await publish(relay, 1, first=number)
        for one in workers:
            if one.consumer.in_flight:
                one.finish()
    assert [one.got for one in workers] == [[0, 3], [1, 4], [2, 5]]


async def test_a_worker_that_is_done_gets_the_next_message(relay: Relay, join: Join) -> None:
    slow, fast = join(), join()
    await publish(relay, 5)
    for _ in range(4):
        fast.finish()
    assert (slow.got, fast.got) == ([0], [1, 2, 3, 4])


async def test_a_take_gets_at_most_its_share(relay: Relay, join: Join) -> None:
    await publish(relay, 30)
    consumers = [relay.attach("agent.a", lambda: None, shared=True) for _ in range(3)]
    assert len(consumers[0].take(50)) == 10
    assert len(consumers[1].take(50)) == 7  # of the 20 that are left
    assert len(consumers[2].take(2)) == 2


async def test_the_messages_of_a_worker_that_leaves_go_to_the_others(
    relay: Relay, join: Join
) -> None:
    leaving, staying = join(room=2), join(room=10)
    await publish(relay, 4)
    assert (leaving.got, staying.got) == ([0, 2], [1, 3])
    leaving.consumer.detach()
    await relay.idle()
    assert staying.got == [1, 3, 0, 2]
    assert pending(relay) == 0


async def test_a_message_that_ends_its_workers_waits_and_stops_no_other(
    relay: Relay, join: Join, clock: ManualClock
) -> None:
    await publish(relay, 1)
    for _ in range(2):
        worker = join()
        assert worker.got == [0]
        worker.consumer.detach()
        await relay.idle()
    other = join(room=10)
    await publish(relay, 2, first=1)
    assert other.got == [1, 2]
    clock.advance_ms(1000)
    assert other.got == [1, 2, 0]


async def test_a_worker_does_not_return_what_another_holds_meanwhile(
    relay: Relay, join: Join
) -> None:
    first, second = join(), join()
    await publish(relay, 1)
    (taken,) = first.ids
    await relay.nack("agent.a", taken)  # over HTTP, as the operator may
    second.consumer.take(1)
    assert list(second.consumer.in_flight) == [taken]
    assert first.consumer.nack([taken], 0.0) == []
    first.consumer.detach()
    await relay.idle()
    assert pending(relay) == 0
    assert len(second.consumer.ack([taken])) == 1


async def test_a_consumer_does_not_return_what_was_leased_elsewhere_meanwhile(
    relay: Relay,
) -> None:
    consumer = relay.attach("agent.a", lambda: None)
    await publish(relay, 1)
    (taken,) = [one.envelope.id for one in consumer.take(1)]
    await relay.nack("agent.a", taken)
    assert len(await relay.lease("agent.a")) == 1
    assert consumer.nack([taken], 0.0) == []
    consumer.detach()
    await relay.idle()
    assert pending(relay) == 0


async def test_an_answer_is_for_the_worker_that_asked(relay: Relay, join: Join) -> None:
    relay.register_endpoint("agent.c")
    workers = [join() for _ in range(3)]
    await publish(relay, 4)  # all are busy, and one message is pending
    asked = await send(relay, "?", to="agent.c", sender="agent.a")
    workers[1].consumer.note_sent(asked.message_id)
    (question,) = await relay.lease("agent.c")
    await send(relay, 9, sender="agent.c", parent=question)
    await relay.idle()
    assert [one.take_answers() for one in workers] == [[], [9], []]
    workers[0].finish()
    assert workers[0].got[-1] == 3


async def test_an_answer_goes_to_others_when_its_worker_leaves(relay: Relay, join: Join) -> None:
    relay.register_endpoint("agent.c")
    asker, other = join(), join()
    asked = await send(relay, "?", to="agent.c", sender="agent.a")
    asker.consumer.note_sent(asked.message_id)
    (question,) = await relay.lease("agent.c")
    await send(relay, 9, sender="agent.c", parent=question)
    await relay.idle()
    assert (asker.consumer.has_answers, other.got) == (False, [])  # it was free to take it
    asker.consumer.detach()
    await relay.idle()
    assert other.got == [9]


async def test_answers_beyond_a_bound_go_to_any_worker(relay: Relay, join: Join) -> None:
    relay.register_endpoint("agent.c")
    asker, other = join(), join(room=1000)
    await publish(relay, 1)  # it keeps the asker busy
    asked = await send(relay, "?", to="agent.c", sender="agent.a")
    asker.consumer.note_sent(asked.message_id)
    (question,) = await relay.lease("agent.c")
    for number in range(300):
        await send(relay, number, sender="agent.c", parent=question)
    await relay.idle()
    while asker.take_answers():
        pass
    assert (len(asker.got), len(other.got)) == (256, 45)


async def test_a_mailbox_is_shared_by_all_or_has_one_consumer(relay: Relay) -> None:
    alone = relay.attach("agent.a", lambda: None)
    with pytest.raises(MailboxTaken, match=r"agent\.a .* that share it"):
        relay.attach("agent.a", lambda: None, shared=True)
    alone.detach()
    relay.attach("agent.a", lambda: None, shared=True)
    with pytest.raises(MailboxTaken, match=r"agent\.a"):
        relay.attach("agent.a", lambda: None)


async def test_a_pool_has_a_bound(start: Start) -> None:
    relay = await start(max_workers=2)
    relay.register_endpoint("agent.a")
    workers = [Worker(relay) for _ in range(2)]
    with pytest.raises(PoolFull, match=r"agent\.a is shared by 2 connections.*maxWorkers"):
        Worker(relay)
    workers[0].consumer.detach()
    Worker(relay)


async def test_a_pool_connects_with_its_first_worker_and_disconnects_with_its_last(
    relay: Relay, join: Join, data: Path
) -> None:
    first, second = join(), join()
    first.consumer.detach()
    second.consumer.detach()
    await relay.idle()
    assert [one["action"] for one in events(data, "session")] == ["connected", "disconnected"]


async def test_a_worker_that_raises_when_notified_does_not_affect_the_others(
    relay: Relay, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    def raises() -> None:
        raise ValueError("not now")

    relay.attach("agent.a", raises, shared=True)
    other = join(room=9)
    await publish(relay, 2)
    assert other.got == [0, 1]
    assert "delivery to the consumer of agent.a failed" in caplog.text
