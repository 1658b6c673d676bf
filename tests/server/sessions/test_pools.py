"""Sessions that share a mailbox: bounds, receipts, and what they leave to others."""

import pytest

from tests.server.sessions.memory_server import MemoryServer, kinds, numbers
from waypost.relay.errors import PoolFull
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.server.sessions.errors import TooManyConnections
from waypost.wire import frames


async def test_pools_leave_half_of_the_connections_to_other_agents(server: MemoryServer) -> None:
    server.context.hub.sessions_max = 6
    for _ in range(3):
        server.connect("agent.pool", shared=True)
    with pytest.raises(TooManyConnections, match="limit of 3"):
        server.connect("agent.pool", shared=True)
    for number in range(3):
        server.connect(f"agent.other-{number}", shared=True)
    with pytest.raises(TooManyConnections, match="limit of 6"):
        server.connect("agent.late")


async def test_a_worker_that_is_rejected_leaves_no_trace(server: MemoryServer) -> None:
    limit = server.relay.settings.max_workers
    workers = [server.connect("agent.pool", shared=True) for _ in range(limit)]
    with pytest.raises(PoolFull):
        server.connect("agent.pool", shared=True)
    assert len(server.context.hub) == limit
    workers[0].disconnect()
    server.connect("agent.pool", shared=True)


async def test_a_worker_is_live_at_once_and_gets_stored_messages_one_by_one(
    server: MemoryServer,
) -> None:
    server.store(3, to="agent.pool")
    await server.wait_until_idle()
    worker = server.connect("agent.pool", shared=True)
    first = await worker.read()
    assert kinds(first) == ["QueueStatus", "Live", "Message"]
    for number in (1, 2):
        worker.ack([one for one in first if isinstance(one, frames.Message)])
        first = await worker.read()
        assert numbers(first) == [number]


async def test_a_message_was_stored_if_it_arrived_before_the_first_worker(
    server: MemoryServer,
) -> None:
    server.store(1, to="agent.pool")
    await server.wait_until_idle()
    first = server.connect("agent.pool", shared=True)
    server.store(1, to="agent.pool", first=1)
    await server.wait_until_idle()
    second = server.connect("agent.pool", shared=True)
    got = await first.read_messages() + await second.read_messages()
    assert [(one.was_stored, number) for one, number in zip(got, numbers(got), strict=True)] == [
        (True, 0),
        (False, 1),
    ]


async def test_a_worker_has_no_more_than_its_prefetch_in_flight(server: MemoryServer) -> None:
    limits = DeliveryLimits(50, 256, prefetch=4)
    worker = server.connect("agent.pool", shared=True, limits=limits)
    server.store(10, to="agent.pool")
    got = await worker.read_messages()
    assert numbers(got) == [0, 1, 2, 3]
    worker.ack(got[:2])
    assert numbers(await worker.read()) == [4, 5]


async def test_confirmations_are_acknowledged_by_the_worker_that_got_them(
    server: MemoryServer,
) -> None:
    workers = [server.connect("agent.pool", shared=True) for _ in range(2)]
    other = server.connect("agent.other")
    sent = await workers[1].send("agent.other", 1)
    assert isinstance(sent[0], frames.SendResult)
    other.ack(await other.read_messages())
    got = [one for one in await workers[1].read() if isinstance(one, frames.DeliveryConfirm)]
    assert [one.message_id for one in got] == [sent[0].message_id]
    assert "DeliveryConfirm" not in kinds(await workers[0].read())
    workers[1].disconnect()  # without an ack: it is stored, and any worker gets it
    again = [one for one in await workers[0].read() if isinstance(one, frames.DeliveryConfirm)]
    assert [one.message_id for one in again] == [sent[0].message_id]
