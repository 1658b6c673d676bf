"""Streaming the directories of a cluster's nodes: each event once, whoever has it."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.cluster_processes import running_cluster
from tests.eventually import eventually
from tests.harness.partitions import name_in
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.stream import StreamOptions, StreamSummary, stream
from waypost.pipeline.journal.sources import JournalSource, parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.tables.registry import TABLES

pytestmark = [pytest.mark.process, pytest.mark.slow]
WAITS_S = 120.0
PATIENT = ClientOptions(send_timeout_s=WAITS_S, connect_timeout_s=WAITS_S)


@asynccontextmanager
async def following(
    spark: SparkSession, lake: str, sources: list[JournalSource]
) -> AsyncIterator[list[StreamSummary]]:
    """Run a stream until the block ends; its summary is in the list then."""
    stop, summaries = threading.Event(), list[StreamSummary]()
    options = StreamOptions(every_s=0.1, build_every_s=WAITS_S)

    def run() -> None:
        summaries.append(stream(spark, lake, sources, options, stop=stop))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield summaries
    finally:
        stop.set()
        thread.join()


async def talk(agents: list[Agent], first: int, count: int) -> set[str]:
    """Let each agent send to the other, in another partition; return the ids of the messages."""
    ids = set[str]()
    for number in range(first, first + count):
        for sender, recipient in (agents, agents[::-1]):
            result = await sender.send(recipient.subject, {"number": number})
            assert result.delivered_to == 1
            ids.add(result.message_id)
    return ids


def stored_ids(lake: Lake) -> list[str]:
    """Return the ids of the messages that were stored, one for each time."""
    events = lake.read("events", EVENTS).where("kind = 'accepted'")
    return [row.id for row in events.select("id").collect()]


def numbers(lake: Lake) -> list[tuple[str, int]]:
    rows = lake.read("events", EVENTS).select("relay", "seq").collect()
    return sorted((row.relay, row.seq) for row in rows)


async def test_a_stream_of_two_nodes_has_each_event_once_though_one_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "lake")

    async def holds(ids: set[str]) -> None:
        def read() -> list[str]:
            return stored_ids(open_lake(spark, path, create=True))

        async def is_there() -> bool:
            return ids <= set(await asyncio.to_thread(read))

        await eventually(is_there, "the messages in the lake", timeout_s=WAITS_S)

    async with running_cluster(tmp_path / "nodes", servers=1, nodes=2, partitions=2) as cluster:
        identities = [Identity.new(name_in(partition, of=2)) for partition in range(2)]
        async with (
            connect(cluster.urls, identities[0], options=PATIENT) as one,
            connect(cluster.urls, identities[1], options=PATIENT) as other,
        ):
            ids = await talk([one, other], 0, 10)
            sources = parse_sources([str(node.directory) for node in cluster.nodes])
            assert len(sources) == 4  # two copies of two partitions
            async with following(spark, path, sources) as summaries:
                await holds(ids)
                cluster.nodes[0].kill(signal.SIGKILL)
                ids |= await talk([one, other], 10, 10)
                await holds(ids)
    (summary,) = summaries
    assert (summary.relays, summary.last_seq.keys()) == (2, {"tests-0", "tests-1"})
    lake = open_lake(spark, path)
    assert not lake.manifest.unbuilt
    assert sorted(stored_ids(lake)) == sorted(ids)
    messages = lake.read("messages", TABLES["messages"])
    assert {row.id for row in messages.select("id").collect()} >= ids
    ingest(lake, sources)
    alone = open_lake(spark, str(tmp_path / "alone"), create=True)
    ingest(alone, sources)
    assert numbers(lake) == numbers(alone) == sorted(set(numbers(alone)))
