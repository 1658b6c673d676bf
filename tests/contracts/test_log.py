"""One contract for every log that a journal can be replicated in: files, JetStream, simulation."""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.batches import Batches
from tests.cluster.simulated_log import Faults, SimulatedLog
from tests.harness.nats_server import MAX_PAYLOAD, NatsServer
from waypost.cluster.streams import connect, create_stream, disconnect, open_log
from waypost.relay.journal.file_log import FileLog
from waypost.relay.journal.log import Appended, Conflict, Log, Record

Reopen = Callable[[], Awaitable[Log]]
NUMBERS = itertools.count()


@pytest.fixture(
    params=["files", "simulation", pytest.param("jetstream", marks=pytest.mark.process)]
)
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopen]:
    """Open the same log again, as another node or another process would."""
    if request.param == "files":
        opened: list[FileLog] = []

        async def open_files() -> Log:
            while opened:
                await opened.pop().close()
            opened.append(FileLog(tmp_path))
            return opened[0]

        yield open_files
        for one in opened:
            await one.close()
    elif request.param == "simulation":
        faults = Faults(random.Random(0))
        faults.none()
        shared = SimulatedLog(faults)

        async def open_connection() -> Log:
            return shared.connect()

        yield open_connection
    else:
        server: NatsServer = request.getfixturevalue("nats_server")
        client, cluster = await connect([server.url]), f"contract-{next(NUMBERS)}"
        await create_stream(client, cluster, 0, replicas=1)

        async def open_stream() -> Log:
            return await open_log(client, cluster, 0, replicas=1)

        yield open_stream
        await disconnect(client)


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
