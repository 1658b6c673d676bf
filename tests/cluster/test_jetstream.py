"""JetStream as a log when servers end, streams are full or gone, and others write to them."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.cluster.batches import Batches
from tests.eventually import eventually
from tests.harness.nats_server import MAX_PAYLOAD, NatsServer
from waypost.cluster import jetstream
from waypost.cluster.jetstream import JetStreamLog
from waypost.cluster.streams import connect, create_stream, disconnect, open_log, stream_name
from waypost.relay.errors import LogUnavailable, LogUnusable
from waypost.relay.journal.log import Appended, Conflict, Unknown

pytestmark = [
    pytest.mark.process,
    # nats-py leaves the socket of a connection that it lost to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
CLUSTER = "tests"
SUBJECT = f"waypost.{CLUSTER}.0"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own, which it may kill."""
    server = NatsServer(tmp_path, max_payload=MAX_PAYLOAD)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    client = await connect([server.url])
    await create_stream(client, CLUSTER, 0, replicas=1)
    yield client
    await disconnect(client)


@pytest.fixture
def log(client: Client) -> JetStreamLog:
    return JetStreamLog(client, stream_name(CLUSTER, 0), SUBJECT)


async def test_an_append_without_a_server_has_an_unknown_outcome(
    client: Client, server: NatsServer
) -> None:
    log = JetStreamLog(client, stream_name(CLUSTER, 0), SUBJECT, timeout_s=1.0)
    server.kill()
    assert isinstance(await log.append(0, Batches().make()), Unknown)
    with pytest.raises(LogUnavailable, match="did not answer within 2 s"):
        await log.tail()
    with pytest.raises(LogUnavailable):
        await log.read(0)


async def test_a_request_fails_as_soon_as_its_connection_is_lost(
    client: Client, server: NatsServer
) -> None:
    arrived = asyncio.Event()

    async def stay_silent(message: Msg) -> None:
        arrived.set()

    await client.subscribe("silent", cb=stay_silent)
    asking = asyncio.ensure_future(client.request("silent", timeout=3600.0))
    await arrived.wait()
    server.kill()
    await eventually(asking.done, "the request to fail")
    assert isinstance(asking.exception(), nats.errors.ConnectionReconnectingError)
    server.start()
    await eventually(lambda: client.is_connected, "a new connection")
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("nobody", timeout=3600.0)


async def test_after_a_restart_the_same_append_can_be_repeated_and_counts_once(
    log: JetStreamLog, server: NatsServer
) -> None:
    batches = Batches()
    first, second = batches.make(), batches.make()
    assert await log.append(0, first) == Appended(1)
    assert len(await log.read(0)) == 1  # it has a consumer, which the restart ends
    server.kill()
    server.start()
    assert (await log.tail()).hash == first.header.hash
    while not isinstance(await log.append(1, second), Appended | Conflict):
        pass
    assert isinstance(await log.append(1, second), Conflict)
    assert [one.record.lines for one in await log.read(0)] == [first.lines, second.lines]


async def test_pieces_without_their_record_are_not_read_and_do_not_block(
    log: JetStreamLog, client: Client
) -> None:
    batches = Batches()
    first, second = batches.make(), batches.make(size=3 * MAX_PAYLOAD)
    await log.append(0, first)
    await client.jetstream().publish(f"{SUBJECT}.piece", b"left behind")
    tail = await log.tail()
    assert (tail.position, tail.hash) == (2, first.header.hash)
    assert [one.position for one in await log.read(0)] == [1]
    assert isinstance(await log.append(1, second), Conflict)
    outcome = await log.append(2, second)
    assert isinstance(outcome, Appended)
    assert [one.record.lines for one in await log.read(1)] == [second.lines]
    assert (await log.tail()).position == outcome.position


async def test_a_full_stream_rejects_a_batch_and_says_what_to_do(client: Client) -> None:
    await create_stream(client, "small", 0, replicas=1, max_bytes=4096)
    log = await open_log(client, "small", 0, replicas=1)
    batches = Batches()
    await log.append(0, batches.make(size=3000))
    with pytest.raises(LogUnusable, match=r"is full .* raise its max_bytes"):
        await log.append(1, batches.make(size=3000))
    assert (await log.tail()).position == 1


async def test_a_stream_that_somebody_deleted_is_an_error(
    log: JetStreamLog, client: Client
) -> None:
    await log.append(0, Batches().make())
    await client.jetstream().delete_stream(stream_name(CLUSTER, 0))
    for ask in (log.tail, lambda: log.read(0)):
        with pytest.raises(LogUnusable, match="does not exist: it was deleted"):
            await ask()
    assert isinstance(await log.append(1, Batches().make()), Unknown)


async def test_a_message_that_waypost_did_not_write_is_an_error(
    log: JetStreamLog, client: Client
) -> None:
    await client.jetstream().publish(f"{SUBJECT}.batch", b"hello")
    for ask in (log.tail, lambda: log.read(0)):
        with pytest.raises(LogUnusable, match="was not written by Waypost"):
            await ask()


async def test_a_log_that_is_closed_leaves_nothing_at_the_server(
    client: Client, log: JetStreamLog
) -> None:
    await log.append(0, Batches().make())
    assert await log.read(0)
    await log.close()
    found = await client.jetstream().stream_info(stream_name(CLUSTER, 0))
    assert found.state.consumer_count == 0


async def test_a_log_that_returns_nothing_is_not_at_its_end(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append(0, Batches().make())

    async def no_messages(*_: object) -> list[Msg]:
        return []

    monkeypatch.setattr("waypost.cluster.jetstream._fetched", no_messages)
    with pytest.raises(LogUnavailable, match="did not return its messages after 0"):
        await log.read(0)


async def test_messages_that_were_lost_with_a_connection_are_read_again(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches()
    for number in range(6):
        await log.append(number, batches.make())
    fetched = jetstream._fetched
    fetches = 0

    async def fetch_two(consumer: Any, limit: int, wait_s: float) -> list[Msg]:
        nonlocal fetches
        fetches += 1
        if fetches == 2:
            await fetched(consumer, 2, wait_s)  # sent, and never arrived
        return await fetched(consumer, 2, wait_s)

    monkeypatch.setattr("waypost.cluster.jetstream._fetched", fetch_two)
    found: list[int] = []
    while entries := await log.read(len(found)):
        found += [entry.position for entry in entries]
    assert found == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
async def test_a_server_that_does_not_move_any_more_is_given_up_and_found_again(
    client: Client, server: NatsServer
) -> None:
    server.signal(signal.SIGSTOP)
    try:
        await client.publish(SUBJECT, b"x" * MAX_PAYLOAD)  # it would wait for this to be sent
        await eventually(lambda: not client.is_connected)
    finally:
        server.signal(signal.SIGCONT)
    await eventually(lambda: client.is_connected)
