"""One contract for every log that a journal can be replicated in: files, JetStream, simulation."""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from tests.cluster.batches import Batches
from tests.cluster.simulated_log import Faults, SimulatedLog
from tests.harness.nats_server import MAX_PAYLOAD, NatsServer
from waypost.cluster.jetstream import JetStreamLog
from waypost.cluster.streams import connect, disconnect, stream_name
from waypost.relay.journal.file_log import FileLog
from waypost.relay.journal.log import Appended, Conflict, Log, Record
from waypost.relay.journal.segments import list_segments

Reopen = Callable[[], Awaitable[Log]]
NUMBERS = itertools.count()


class Store(NamedTuple):
    """Where a log is kept. `reopen` opens it again, as another node or another process would;
    `trim` removes the records up to a position, which are one or more segments."""

    reopen: Reopen
    trim: Callable[[int], Awaitable[object]]


@pytest.fixture(
    params=["files", "simulation", pytest.param("jetstream", marks=pytest.mark.process)]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "files":
        opened: list[FileLog] = []

        async def open_files() -> Log:
            while opened:
                await opened.pop().close()
            opened.append(FileLog(tmp_path))
            return opened[0]

        async def delete_segments(position: int) -> None:
            for first, path in list_segments(tmp_path).items():
                if first <= position:
                    path.unlink()

        yield Store(open_files, delete_segments)
        for one in opened:
            await one.close()
    elif request.param == "simulation":
        faults = Faults(random.Random(0))
        faults.none()
        shared = SimulatedLog(faults)

        async def open_connection() -> Log:
            return shared.connect()

        async def trim(position: int) -> None:
            shared.trimmed = position

        yield Store(open_connection, trim)
    else:
        server: NatsServer = request.getfixturevalue("nats_server")
        client, cluster = await connect([server.url]), f"contract-{next(NUMBERS)}"
        name, subject = stream_name(cluster, 0), f"waypost.{cluster}.0"
        subjects = [f"{subject}.batch", f"{subject}.piece"]
        # As `create_stream` makes it, but that forbids to remove messages.
        await client.jetstream().add_stream(
            StreamConfig(name=name, subjects=subjects, discard=DiscardPolicy.NEW)
        )

        async def open_stream() -> Log:
            return JetStreamLog(client, name, subject)

        async def purge(position: int) -> None:
            await client.jetstream().purge_stream(name, seq=position + 1)

        yield Store(open_stream, purge)
        await disconnect(client)


@pytest.fixture
def reopen(store: Store) -> Reopen:
    return store.reopen


@pytest.fixture
async def log(reopen: Reopen) -> Log:
    return await reopen()


@pytest.fixture
def batches() -> Batches:
    return Batches()


async def appended(log: Log, *records: Record) -> int:
    """Append records at the end, and return the position of the last."""
    position = (await log.tail()).position
    for record in records:
        outcome = await log.append(position, record)
        assert isinstance(outcome, Appended), outcome
        position = outcome.position
    return position


async def test_an_empty_log_ends_at_zero(log: Log) -> None:
    tail = await log.tail()
    assert (tail.position, tail.hash) == (0, "")
    assert await log.read(0) == []


async def test_an_appended_record_is_the_tail_and_is_read_back(log: Log, batches: Batches) -> None:
    record = batches.make()
    position = await appended(log, record)
    tail = await log.tail()
    assert tail.position == position
    assert tail.header is not None
    assert tail.header.is_same(record.header)
    ((at, read),) = await log.read(0)
    assert (at, read.lines) == (position, record.lines)
    assert read.header.prev == record.header.prev


async def test_records_are_read_in_order_from_any_position(log: Log, batches: Batches) -> None:
    records = [batches.make() for _ in range(5)]
    positions = [await appended(log, record) for record in records]
    for number, after in enumerate([0, *positions]):
        entries = await log.read(after)
        assert [one.record.lines for one in entries] == [one.lines for one in records[number:]]
        assert [one.position for one in entries] == positions[number:]


async def test_of_two_appends_that_expect_the_same_end_one_succeeds(
    log: Log, batches: Batches
) -> None:
    first, other = batches.make(), Batches().make(size=50)
    position = await appended(log, first)
    assert await log.append(0, other) == Conflict(position)
    assert [one.record.lines for one in await log.read(0)] == [first.lines]


async def test_an_append_beyond_the_end_is_a_conflict(log: Log, batches: Batches) -> None:
    position = await appended(log, batches.make())
    assert isinstance(await log.append(position + 7, batches.make()), Conflict)


async def test_a_record_may_only_seal(log: Log, batches: Batches) -> None:
    first, seal, second = batches.make(), batches.seal_only(), batches.make()
    await appended(log, first, seal, second)
    lines = [one.record.lines for one in await log.read(0) if one.record.lines]
    assert lines == [first.lines, second.lines]


async def test_everything_is_there_when_the_log_is_opened_again(
    reopen: Reopen, batches: Batches
) -> None:
    records = [batches.make(), batches.make(seal=True), batches.make()]
    position = await appended(await reopen(), *records)
    log = await reopen()
    assert (await log.tail()).position == position
    assert [one.record.lines for one in await log.read(0)] == [one.lines for one in records]
    assert [one.record.header.seal for one in await log.read(0)] == [False, True, False]
    await appended(log, batches.make())


async def test_records_past_retention_are_skipped_and_the_others_stay_where_they_are(
    store: Store, batches: Batches
) -> None:
    log = await store.reopen()
    removed = await appended(log, batches.make(), batches.make(seal=True))
    kept = [batches.make(), batches.make()]
    await appended(log, *kept)
    before = await log.read(removed)
    await store.trim(removed)
    log = await store.reopen()
    for after in (0, removed - 1, removed):
        found = await log.read(after)
        assert [one.position for one in found] == [one.position for one in before]
        assert [one.record.lines for one in found] == [one.lines for one in kept]
    assert (await log.tail()).hash == kept[-1].header.hash
    await appended(log, batches.make())


@pytest.mark.parametrize("size", [MAX_PAYLOAD - 2100, MAX_PAYLOAD, 10 * MAX_PAYLOAD])
async def test_a_large_batch_is_one_record(log: Log, batches: Batches, size: int) -> None:
    small, large, after = batches.make(), batches.make(size=size), batches.make()
    await appended(log, small, large, after)
    records = [small, large, after]
    assert [one.record.lines for one in await log.read(0)] == [one.lines for one in records]
    (_, tail) = await log.tail()
    assert tail is not None
    assert tail.is_same(after.header)


async def test_a_conflict_in_a_large_batch_leaves_nothing_behind(
    log: Log, batches: Batches
) -> None:
    first = batches.make()
    await appended(log, first)
    assert isinstance(await log.append(0, Batches().make(size=5 * MAX_PAYLOAD)), Conflict)
    second = batches.make()
    await appended(log, second)
    assert [one.record.lines for one in await log.read(0)] == [first.lines, second.lines]
