"""The journals of a cluster's nodes: each batch once, whoever has it, and an exact backtest."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cluster.limits import COUNT, LIMITED
from tests.cluster.nodes import Node
from tests.cluster.simulated_log import Faults, SimulatedLog
from tests.harness.partitions import name_in
from waypost import Envelope, Relay
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.segments import list_local_segments
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.partitions import partition_of
from waypost.relay.relay import Partition
from waypost.testing import ManualClock
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

NAMES = [name_in(partition, number) for partition in range(COUNT) for number in range(2)]


class Cluster:
    """Two nodes with all partitions, each on a log that never fails; it is its own carrier."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        faults = Faults(Random(0))
        faults.none()
        self.logs = [SimulatedLog(faults) for _ in range(COUNT)]
        self.nodes = [[self._node(root, node, one) for node in "ab"] for one in range(COUNT)]
        self.owners: list[Node] = []

    def _node(self, root: Path, name: str, number: int) -> Node:
        directory = root / f"node-{name}" / "partitions" / str(number)
        partition = Partition(number, COUNT, self)
        node = Node(
            name, root, self.logs[number], settings=LIMITED, partition=partition, clock=self.clock
        )
        node.directory = directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        (root / f"node-{name}" / "node.json").write_text('{"cluster": "orders"}')
        return node

    def relay(self, subject: str) -> Relay:
        relay = self.owners[partition_of(subject, COUNT)].relay
        assert relay is not None
        return relay

    async def carry(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        relay = self.owners[partition].relay
        assert relay is not None
        return await relay.decide_forwarded(origin, messages)

    async def own(self, which: int) -> None:
        """Let a node take over all partitions; it registers its endpoints."""
        for node in self.owners:
            await node.step_down()
        self.owners = [nodes[which] for nodes in self.nodes]
        for node in self.owners:
            await node.take_over()
        for name in NAMES:
            self.relay(name).register_endpoint(name)

    async def follow(self, which: int) -> None:
        for nodes in self.nodes:
            await nodes[which].follow()

    async def close(self) -> None:
        for nodes in self.nodes:
            for node in nodes:
                await node.close()


async def talk(cluster: Cluster, random: Random, count: int) -> None:
    """Send messages within and across partitions, so that every limit is reached."""
    received: dict[str, list[Envelope]] = {name: [] for name in NAMES}
    for _ in range(count):
        sender, subject = random.sample(NAMES, 2)
        subject = "agent.>" if random.random() < 0.1 else subject
        parent = random.choice(received[sender]) if received[sender] else None
        await cluster.relay(sender).publish(subject, "x", sender=sender, parent=parent)
        if random.random() < 0.4:
            name = random.choice(NAMES)
            found = await cluster.relay(name).lease(name, limit=3)
            received[name] = (received[name] + found)[-4:]
            await cluster.relay(name).ack(name, [one.id for one in found])
        cluster.clock.advance_ms(random.choice([10, 1_000, 5_000]))


def made(root: Path, act: Callable[[Cluster], Awaitable[None]]) -> list[str]:
    """Run a cluster; return the directories of its nodes."""

    async def run() -> None:
        cluster = Cluster(root)
        try:
            await act(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())
    return [str(root / "node-a"), str(root / "node-b")]


async def two_owners(cluster: Cluster) -> None:
    """Let both nodes own in turn; the segments of the first are sealed, and the other is behind."""
    await cluster.own(0)
    await talk(cluster, Random(1), 120)
    await cluster.follow(1)
    await cluster.own(1)
    await talk(cluster, Random(2), 120)


def lake_of(spark: SparkSession, tmp_path: Path, name: str = "lake") -> Lake:
    return open_lake(spark, str(tmp_path / name), create=True)


def numbers(lake: Lake) -> dict[str, list[int]]:
    """Return the numbers of all events, by relay."""
    rows = lake.read("events", EVENTS).groupBy("relay").agg(F.sort_array(F.collect_list("seq")))
    return dict(rows.collect())


def test_each_batch_is_ingested_once_whoever_has_it(spark: SparkSession, tmp_path: Path) -> None:
    ends: list[int] = []

    async def act(cluster: Cluster) -> None:
        await two_owners(cluster)
        await cluster.follow(0)  # the first one has less: the last batches are of the second
        states = (cluster.relay(name_in(one))._runtime.ledger.state for one in range(COUNT))
        await asyncio.gather(*(cluster.relay(name_in(one)).sync() for one in range(COUNT)))
        ends.extend(state.seq for state in states)

    first, second = made(tmp_path / "cluster", act)
    both = lake_of(spark, tmp_path, "both")
    ingest(both, parse_sources([first, second]))
    found = numbers(both)
    assert {relay: sorted(set(seqs)) for relay, seqs in found.items()} == found
    for one, end in enumerate(ends):
        assert found[f"orders-{one}"][:end] == list(range(1, end + 1))
    one_by_one = lake_of(spark, tmp_path, "later")
    ingest(one_by_one, parse_sources([first]))
    ingest(one_by_one, parse_sources([second]))
    again = ingest(one_by_one, parse_sources([first]))
    assert (again.events, numbers(one_by_one)) == (0, found)


def test_a_backtest_of_a_cluster_has_no_differences(spark: SparkSession, tmp_path: Path) -> None:
    nodes = made(tmp_path / "cluster", two_owners)
    lake = lake_of(spark, tmp_path)
    ingest(lake, parse_sources(nodes))
    kinds = {row.kind for row in lake.read("events", EVENTS).select("kind").distinct().collect()}
    assert {"forwarded", "decided", "accepted", "rejected"} <= kinds
    for shortcut in (True, False):
        result = backtest(lake, shortcut=shortcut)
        assert (result.differences, result.by_reason) == (0, {})
        assert result.rejected.keys() >= {"rate_limited", "quota_exceeded"}


def test_a_stream_reads_an_open_segment_as_far_as_the_log_has_it(tmp_path: Path) -> None:
    made(tmp_path / "cluster", two_owners)
    directory = tmp_path / "cluster" / "node-b" / "partitions" / "0"
    before = list_local_segments("orders-0", str(directory))[-1]
    assert (before.sealed, before.replica) == (False, True)
    with Path(before.path).open("ab") as segment:
        segment.write(b'{"kind":"acked"}\n')  # written, and not confirmed
    assert list_local_segments("orders-0", str(directory))[-1].bytes == before.bytes


def test_a_batch_that_the_log_does_not_have_is_not_ingested(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, _ = made(tmp_path / "cluster", two_owners)
    journal = tmp_path / "cluster" / "node-a" / "partitions" / "0" / "journal"
    before = lake_of(spark, tmp_path, "before")
    ingest(before, parse_sources([first]))
    [segment] = journal.glob("*.open")
    mark = journal / "confirmed"
    parts = mark.read_text().strip().strip("[]").split(",")
    assert segment.stat().st_size == int(parts[4])
    parts[4] = str(int(parts[4]) - 1)  # the last batch is not confirmed
    mark.write_text(f"[{','.join(parts)}]")
    after = lake_of(spark, tmp_path, "after")
    ingest(after, parse_sources([first]))
    assert 0 < len(numbers(after)["orders-0"]) < len(numbers(before)["orders-0"])


def test_a_node_is_named_after_its_cluster_or_as_given(tmp_path: Path) -> None:
    node = tmp_path / "node"
    for number in (0, 10, 2):
        (node / "partitions" / str(number) / "journal").mkdir(parents=True)
    with pytest.raises(JournalUnusable, match="does not name its cluster"):
        parse_sources([str(node)])
    assert [one.relay for one in parse_sources([f"mail={node}"])] == ["mail-0", "mail-2", "mail-10"]
    (node / "node.json").write_text('{"cluster": "orders"}')
    shutil.copytree(node, tmp_path / "other")
    copies = parse_sources([str(node), str(tmp_path / "other")])
    assert sorted({one.relay for one in copies}) == ["orders-0", "orders-10", "orders-2"]
