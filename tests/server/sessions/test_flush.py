"""Delivery of stored messages: counted, in order, in batches that wait for confirmations."""

import pytest

from tests.server.sessions.memory_server import MemoryServer, ServerLauncher, kinds, numbers
from waypost import PublishResult
from waypost.server.context import ServeOptions
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

HOUR_MS = 3_600_000


async def read_all(server: MemoryServer, subject: str = "agent.a") -> list[int]:
    """Connect, confirm batch after batch until `live`, and disconnect."""
    agent = server.connect(subject)
    found: list[int] = []
    while True:
        operations = await agent.read()
        found += numbers(operations)
        agent.ack(one for one in operations if isinstance(one, frames.Message))
        if "Live" in kinds(operations):
            agent.disconnect()
            return found


async def test_the_count_of_pending_messages_comes_first(server: MemoryServer) -> None:
    server.store(7)
    await server.wait_until_idle()
    first, *rest = await server.connect().read()
    assert first == frames.QueueStatus(pending=7)
    assert numbers(rest) == list(range(7))


async def test_with_nothing_stored_the_count_is_zero_and_live_follows(
    server: MemoryServer,
) -> None:
    assert await server.connect().read() == [
        frames.QueueStatus(pending=0),
        frames.Live(),
    ]


async def test_expired_messages_neither_count_nor_block(
    server: MemoryServer, clock: ManualClock
) -> None:
    for number in range(60):
        server.publish(number, budget={"ttl": clock() // 1000 + HOUR_MS})
    server.store(3, first=60)
    clock.advance_ms(HOUR_MS + 1)
    status, *rest = await server.connect().read()
    assert status == frames.QueueStatus(pending=3)
    assert numbers(rest) == [60, 61, 62]


async def test_messages_that_expire_during_the_flush_are_skipped(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(50)
    server.publish("short", budget={"ttl": clock() // 1000 + 10})
    server.store(1, first=50)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    clock.advance_ms(11)
    agent.ack(batch)
    assert numbers(await agent.read_messages()) == [50]


async def test_at_most_fifty_are_delivered_at_once(server: MemoryServer) -> None:
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    assert numbers(await agent.read()) == list(range(50))
    assert await agent.read() == []


async def test_the_next_batch_waits_for_the_last_confirmation(server: MemoryServer) -> None:
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    agent.ack(batch[:49])
    assert await agent.read() == []
    agent.ack(batch[49:])
    assert numbers(await agent.read()) == list(range(50, 100))


async def test_the_batch_size_is_configurable(launcher: ServerLauncher) -> None:
    server = await launcher.open(ServeOptions(batch=7))
    server.store(10)
    await server.wait_until_idle()
    assert numbers(await server.connect().read()) == list(range(7))


async def test_live_follows_the_last_confirmation_and_not_before(server: MemoryServer) -> None:
    server.store(3)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    agent.ack(batch[:2])
    assert await agent.read() == []
    agent.ack(batch[2:])
    assert await agent.read() == [frames.Live()]


async def test_counted_messages_come_before_live_even_if_not_yet_on_disk(
    server: MemoryServer,
) -> None:
    server.store(3)
    agent = server.connect()
    status, *messages = await agent.read()
    assert status == frames.QueueStatus(pending=3)
    assert [one.was_stored for one in messages if isinstance(one, frames.Message)] == [True] * 3
    assert "Live" not in kinds(messages)


async def test_live_is_sent_once(server: MemoryServer) -> None:
    agent = server.connect()
    await agent.read()
    server.store(5)
    agent.ack(await agent.read_messages())
    server.store(1, first=5)
    assert "Live" not in kinds(await agent.read())


async def test_three_hundred_stored_arrive_in_order(server: MemoryServer) -> None:
    server.store(300)
    await server.wait_until_idle()
    assert await read_all(server) == list(range(300))
    assert server.relay.metrics().total_messages == 0


async def test_one_by_one_confirmations_keep_the_order_too(server: MemoryServer) -> None:
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    found: list[int] = []
    while batch := await agent.read_messages():
        found += numbers(batch)
        for message in reversed(batch):
            agent.ack([message])
    assert found == list(range(120))


async def test_disconnected_after_ten_confirmations_the_rest_arrives_in_order(
    server: MemoryServer,
) -> None:
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    agent.ack((await agent.read_messages())[:10])
    agent.disconnect()
    assert (await server.connect("agent.a").read())[0] == frames.QueueStatus(pending=110)


async def test_no_confirmed_message_is_delivered_twice(server: MemoryServer) -> None:
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    agent.ack((await agent.read_messages())[:10])
    agent.disconnect()
    assert await read_all(server) == list(range(10, 120))


async def test_confirmations_out_of_order_leave_the_gaps_in_order(server: MemoryServer) -> None:
    server.store(20)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    agent.ack(batch[1::2])
    agent.disconnect()
    assert await read_all(server) == list(range(0, 20, 2))


async def test_messages_sent_during_the_flush_follow_the_stored_ones(
    server: MemoryServer,
) -> None:
    server.store(60)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    server.store(5, first=60)
    assert await agent.read() == []
    agent.ack(batch)
    assert numbers(await agent.read()) == list(range(50, 65))


async def test_a_message_leaves_only_when_confirmed(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(2)
    await server.wait_until_idle()
    for _ in range(3):
        agent = server.connect()
        assert numbers(await agent.read()) == [0, 1]
        agent.disconnect()
        clock.advance_ms(1_000)  # after the second time, the mailbox pauses for up to a second


async def test_without_confirmations_live_delivery_stops_at_its_bound(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(ServeOptions(unconfirmed_max=8))
    agent = server.connect()
    await agent.read()
    server.store(20)
    batch = await agent.read_messages()
    assert numbers(batch) == list(range(8))
    agent.ack(batch[:3])
    assert numbers(await agent.read()) == [8, 9, 10]


async def test_unconfirmed_messages_are_bounded_by_bytes_too(
    server: MemoryServer,
) -> None:
    agent = server.connect()
    await agent.read()
    for number in range(30):
        server.publish([number, "x" * 200_000], sender=f"agent.sender-{number}")
    batch = await agent.read_messages()
    assert len(batch) == 21  # the message that exceeds 4 MiB is the last
    agent.ack(batch)
    assert [number for number, _ in numbers(await agent.read())] == list(range(21, 30))


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_payloads_arrive_as_they_were_sent(server: MemoryServer, protocol: str) -> None:
    payload = {"text": "ünï\n\u2028\x00", "n": [1, -2.5, 1e300, None, True], "big": 2**63}
    server.publish(payload)
    await server.wait_until_idle()
    assert numbers(await server.connect(protocol=protocol).read()) == [payload]


async def test_a_nacked_message_is_delivered_again_at_once(server: MemoryServer) -> None:
    server.store(2)
    await server.wait_until_idle()
    agent = server.connect()
    first, second = await agent.read_messages()
    agent.send_frame(frames.Nack(ids=[first.envelope.id]))
    assert await agent.read() == []  # the other one of the batch is not confirmed yet
    agent.ack([second])
    assert numbers(await agent.read()) == [0]


async def test_a_message_nacked_with_a_delay_is_delivered_after_it(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(2)
    await server.wait_until_idle()
    agent = server.connect()
    first, second = await agent.read_messages()
    agent.send_frame(frames.Nack(ids=[first.envelope.id], delay=5.0))
    agent.ack([second])
    assert await agent.read() == [frames.Live()]
    clock.advance_ms(4_999)
    assert await agent.read() == []
    clock.advance_ms(1)
    (again,) = await agent.read()
    assert isinstance(again, frames.Message)
    assert again.was_stored, "it has waited since before the agent came"


async def test_messages_in_flight_elsewhere_cannot_be_nacked(server: MemoryServer) -> None:
    server.store(1)
    server.store(1, to="agent.other")
    await server.wait_until_idle()
    agent, other = server.connect(), server.connect("agent.other")
    (mine,) = await agent.read_messages()
    (theirs,) = await other.read_messages()
    agent.send_frame(frames.Nack(ids=[theirs.envelope.id]), frames.Ack(ids=[theirs.envelope.id]))
    agent.ack([mine])
    assert await agent.read() == [frames.Live()]
    other.disconnect()
    assert numbers(await server.connect("agent.other").read()) == [0]


async def test_a_message_acknowledged_over_http_does_not_block(server: MemoryServer) -> None:
    server.store(60)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    await server.relay.ack("agent.a", [one.envelope.id for one in batch])
    agent.ack(batch)
    assert numbers(await agent.read()) == list(range(50, 60))


async def test_a_message_nacked_over_http_is_delivered_again(server: MemoryServer) -> None:
    server.store(3)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    for _ in range(3):
        await server.relay.nack("agent.a", [batch[0].envelope.id])
        assert numbers(await agent.read()) == []
    agent.ack(batch[1:])
    assert numbers(await agent.read()) == [0]


async def test_a_message_nacked_over_http_repeatedly_counts_once(server: MemoryServer) -> None:
    agent = server.connect()
    await agent.read()
    sent = server.publish("x" * 200_000)
    for _ in range(30):
        assert len(await agent.read_messages()) == 1
        server.relay.claims.release("agent.a", sent.message_id)
    server.store(1)
    assert numbers(await agent.read())[-1] == 0


async def test_an_agent_whose_mailbox_is_unregistered_stays_connected_without_messages(
    server: MemoryServer,
) -> None:
    agent = server.connect()
    await agent.read()
    server.relay.unregister_endpoint("agent.a")
    agent.send_frame(frames.Ack(ids=["x"]), frames.Nack(ids=["x"]))
    assert await agent.read() == []
    server.relay.register_endpoint("agent.a")
    server.store(1)
    assert numbers(await agent.read()) == [0]


async def test_the_same_id_sent_twice_is_delivered_once(server: MemoryServer) -> None:
    agent = server.connect()
    await agent.read()
    results: list[PublishResult] = [server.publish(1, message_id="same") for _ in range(2)]
    assert results[0] == results[1]
    agent.ack(await agent.read_messages())
    server.publish(1, message_id="same")
    assert await agent.read() == []
