"""A node's copy of the log: what it does with batches that only one of the two has."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.cluster.nodes import SETTINGS, Node, segments_of
from tests.cluster.simulated_log import Faults, SimulatedLog
from tests.eventually import eventually
from waypost import Relay
from waypost.cluster.lease import Lease
from waypost.cluster.partition import PartitionRunner
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import LogLost, LogUnusable, NotOwner, RelayStopped
from waypost.relay.journal.confirmed import read_mark
from waypost.relay.journal.replicated import Ownership
from waypost.relay.state.recovery import checkpoint, recover

Nodes = tuple[Node, Node]


class ManualLease(Lease):
    """A lease that another node holds until `is_free`."""

    def __init__(self) -> None:
        self.lease_s = 0.1
        self.is_free = False

    async def hold(self) -> bool:
        await asyncio.sleep(0)
        return self.is_free

    async def release(self) -> None:
        pass


@asynccontextmanager
async def running(node: Node, lease: Lease) -> AsyncIterator[PartitionRunner]:
    """Run a node as a whole, which follows and takes over by itself, until the block ends."""

    def open_relay(ownership: Ownership) -> Relay:
        return Relay(node.directory, settings=SETTINGS, clock=node.clock, ownership=ownership)

    runner = PartitionRunner(node.directory, node.connection, lease, open_relay)
    task = asyncio.create_task(runner.run(node.name))
    try:
        yield runner
    finally:
        runner.stop()
        await task


@pytest.fixture
def log() -> SimulatedLog:
    faults = Faults(random.Random(0))
    faults.none()
    return SimulatedLog(faults)


@pytest.fixture
async def nodes(tmp_path: Path, log: SimulatedLog) -> AsyncIterator[Nodes]:
    """Two nodes; the first one owns the partition and has three messages."""
    first, second = Node("first", tmp_path, log), Node("second", tmp_path, log)
    await first.take_over()
    relay_of(first).register_endpoint("team.a")
    for number in range(3):
        await send(first, number)
    yield first, second
    for node in (first, second):
        node.connection.cut()
        await node.close()


def relay_of(node: Node) -> Relay:
    assert node.relay is not None
    return node.relay


async def send(node: Node, payload: object, **more: str) -> str:
    result = await relay_of(node).publish("team.a", payload, sender="team.b", **more)
    return result.message_id


async def payloads(node: Node) -> list[object]:
    return [one.payload for one in await relay_of(node).peek("team.a")]


async def test_a_node_with_nothing_gets_everything_from_the_log(nodes: Nodes) -> None:
    first, second = nodes
    await first.step_down()
    await second.take_over()
    assert await payloads(second) == [0, 1, 2]


async def test_the_old_owner_stops_at_its_next_batch(nodes: Nodes) -> None:
    first, second = nodes
    await second.take_over()
    with pytest.raises(NotOwner, match="owned by second since epoch 2"):
        await send(first, "late")
    with pytest.raises(RelayStopped):
        await relay_of(first).lease("team.a")
    assert await payloads(second) == [0, 1, 2]


async def test_an_unconfirmed_batch_that_the_log_lacks_is_set_aside(nodes: Nodes) -> None:
    first, second = nodes
    await second.take_over()
    with pytest.raises(NotOwner):
        await send(first, "late", message_id="late")
    await first.step_down()
    await first.follow()
    assert first.follower is not None
    assert first.follower.lost == []
    (kept,) = (first.journal / "set-aside").iterdir()
    assert b'"id":"late"' in kept.read_bytes()
    assert segments_of(first.journal) == segments_of(second.journal)


async def test_an_end_that_the_log_lost_is_appended_again_by_a_node_that_has_it(
    nodes: Nodes, log: SimulatedLog
) -> None:
    first, _ = nodes
    await first.step_down()
    before = list(log.records)
    log.forget(2)
    await first.take_over()
    assert [one.lines for one in log.records[: len(before)]] == [one.lines for one in before]
    assert await payloads(first) == [0, 1, 2]


async def test_confirmed_events_that_the_log_replaced_are_reported_until_an_operator_acts(
    nodes: Nodes, log: SimulatedLog
) -> None:
    first, second = nodes
    await first.step_down()
    log.forget(1)
    await second.take_over()
    await second.step_down()
    with pytest.raises(LogLost, match="lost events that it had confirmed"):
        await first.take_over()
    await first.die(random.Random(0), lose_files=False)
    with pytest.raises(LogLost, match=r"set-aside.*\.lost still has them"):
        await first.take_over()
    assert first.follower is not None
    (lost,) = first.follower.lost
    lost.unlink()
    await first.take_over()
    assert await payloads(first) == [0, 1]


async def test_a_second_loss_keeps_the_events_of_the_first(
    nodes: Nodes, log: SimulatedLog, tmp_path: Path
) -> None:
    first, _ = nodes
    for _ in range(2):
        await first.step_down()
        log.forget(len(log.records) - 1)
        other = Node(f"other-{len(log.records)}-{log.forgotten}", tmp_path, log)
        await other.take_over()
        await other.step_down()
        await first.follow()
    assert first.follower is not None
    assert len(first.follower.lost) == 2


@pytest.mark.parametrize("at_once", [1, 32])
async def test_a_log_that_contradicts_itself_is_not_copied(
    nodes: Nodes,
    log: SimulatedLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    monkeypatch.setattr("tests.cluster.simulated_log.RECORDS_PER_READ", at_once)
    first, second = nodes
    sequence = len(log.records)
    log.forget(1)
    await second.take_over()
    assert len(log.records) == sequence
    await send(first, "not fenced, because the log uses its sequences again")
    with pytest.raises(LogUnusable, match="by first, does not continue the one before"):
        async with asyncio.timeout(30):
            await Node("third", tmp_path, log).follow()


async def test_an_empty_log_is_not_filled_from_the_copy_of_a_node(
    nodes: Nodes, log: SimulatedLog
) -> None:
    first, _ = nodes
    await first.step_down()
    log.records.clear()
    with pytest.raises(LogLost, match=r"is empty, but .* has events of it up to"):
        await first.take_over()
    assert log.records == []


@pytest.mark.parametrize(
    ("is_taken", "problem"), [(False, "log is empty, but"), (True, "lost events that it had")]
)
async def test_a_node_that_is_ahead_of_a_log_made_again_reports_it_while_it_follows(
    nodes: Nodes, log: SimulatedLog, is_taken: bool, problem: str
) -> None:
    first, second = nodes
    await first.step_down()
    log.records.clear()
    if is_taken:
        await second.take_over()
    async with running(first, ManualLease()) as runner:
        await eventually(lambda: problem in runner.problem, "the error")


async def test_a_node_behind_the_retention_of_the_log_asks_for_a_copy(
    nodes: Nodes, log: SimulatedLog
) -> None:
    _, second = nodes
    log.trimmed = 2
    with pytest.raises(LogUnusable, match="copy the data directory of another node"):
        await second.follow()


async def test_a_batch_that_was_changed_in_the_log_is_not_copied(
    nodes: Nodes, log: SimulatedLog
) -> None:
    _, second = nodes
    record = log.records[1]
    log.records[1] = msgspec.structs.replace(record, lines=record.lines.replace(b"team", b"tame"))
    with pytest.raises(LogUnusable, match="holds a damaged batch"):
        await second.follow()
    assert len(b"".join(segments_of(second.journal).values())) == record.header.offset


async def test_a_killed_owner_continues_where_the_log_ends(nodes: Nodes) -> None:
    first, _ = nodes
    await first.die(random.Random(7), lose_files=True)
    await first.take_over()
    assert await payloads(first) == [0, 1, 2]


async def test_a_followers_checkpoint_spares_the_fold_of_its_history(nodes: Nodes) -> None:
    _, second = nodes
    await second.follow()
    data = DataDir(second.directory)
    assert recover(data, 0, repair=False).report.events_read > 3
    checkpoint(data)
    assert recover(data, 0, repair=False).report.events_read == 0
    await second.take_over()
    assert await payloads(second) == [0, 1, 2]


@pytest.mark.parametrize("checkpoint_events", [5, 1_000_000])
async def test_a_node_that_takes_over_folds_what_came_after_its_checkpoint(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, checkpoint_events: int
) -> None:
    first, second = nodes
    monkeypatch.setattr("waypost.cluster.partition.CHECKPOINT_EVENTS", checkpoint_events)
    for number in range(3, 30):
        await send(first, number)
    events = relay_of(first)._runtime.ledger.state.seq
    lease = ManualLease()
    async with running(second, lease) as runner:
        mark = second.journal / "confirmed"
        await eventually(lambda: mark.exists() and read_mark(second.journal).seq == events)
        await first.step_down()
        lease.is_free = True
        await eventually(lambda: runner.relay is not None, "the second node to own")
        assert runner.relay is not None
        folded = runner.relay._runtime.report.events_read
        assert [one.payload for one in await runner.relay.peek("team.a")] == list(range(30))
    assert folded < 10 if checkpoint_events == 5 else folded >= events


async def test_a_relay_with_maildir_files_may_own_a_partition(
    tmp_path: Path, log: SimulatedLog
) -> None:
    node = Node("files", tmp_path, log)
    await node.follow()
    assert node.follower is not None
    ownership = await node.follower.take_over("files")
    settings = msgspec.structs.replace(SETTINGS, storage="maildir")
    async with Relay(node.directory, settings=settings, ownership=ownership) as relay:
        relay.register_endpoint("team.a")
        await relay.publish("team.a", 1, sender="team.b")
        await relay.idle()
        assert len(list(node.directory.glob("mailboxes/*/new/*"))) == 1
