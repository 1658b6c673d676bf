"""Streaming live relays into a lake gives the same result as `ingest` of their journals."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.eventually import eventually
from tests.pipeline.datasource.scenarios import START_US, relay_at, run_traffic
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.stream import StreamOptions, ingest_batch, stream
from waypost.pipeline.journal.sources import JournalSource, parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake, open_lake
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.tables.build import build
from waypost.pipeline.tables.registry import TABLES
from waypost.testing import ManualClock

UNTIL_IDLE = StreamOptions(until_idle=True)
WAITS_S = 120.0


class Builds:
    """Replaces `build`: records its calls and marks everything as built."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def __call__(self, lake: Lake) -> None:
        change = lake.begin()
        self.versions.append(lake.manifest.version)
        change.draft.unbuilt.clear()
        change.commit()


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    rows = lake.read("events", EVENTS).orderBy("relay", "seq").collect()
    return [row.asDict(recursive=True) for row in rows]


def table_rows(lake: Lake, table: str) -> list[str]:
    return sorted(str(row) for row in lake.read(table, TABLES[table]).collect())


def ingested(spark: SparkSession, path: Path, sources: list[JournalSource]) -> Lake:
    lake = open_lake(spark, str(path), create=True)
    ingest(lake, sources)
    return lake


@pytest.mark.slow
async def test_a_stream_completed_by_ingest_equals_ingest_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock, other_clock = ManualClock(START_US), ManualClock(START_US)
    sources = parse_sources([str(tmp_path / "north"), f"south={tmp_path / 'other'}"])
    streamed = str(tmp_path / "streamed")
    builds = Builds()

    def catch_up() -> int:
        return stream(spark, streamed, sources, UNTIL_IDLE, build=builds).events

    async with (
        relay_at(tmp_path / "north", clock) as north,
        relay_at(tmp_path / "other", other_clock) as south,
    ):
        await run_traffic(north, clock, rounds=1)
        assert catch_up() > 50
        await run_traffic(north, clock, rounds=1)
        await run_traffic(south, other_clock, rounds=1)
        await north.seal_journal()
        await run_traffic(north, clock, rounds=1)
        assert catch_up() > 100
        assert catch_up() == 0
        await run_traffic(south, other_clock, rounds=1)  # left for `ingest`
        await north.seal_journal()
        await south.seal_journal()

    lake = open_lake(spark, streamed)
    assert not any(one.missing for of in lake.manifest.relays.values() for one in of.values())
    after = ingest(lake, sources)
    alone = ingested(spark, tmp_path / "alone", sources)
    assert rows_of(lake) == rows_of(alone)
    assert lake.manifest.relays == alone.manifest.relays
    assert 0 < after.events < len(rows_of(alone))
    assert len(builds.versions) == 2  # at the end of each run with new events


async def test_a_lost_checkpoint_duplicates_nothing(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock(START_US)
    sources = parse_sources([str(tmp_path / "data")])
    path = str(tmp_path / "lake")
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        stream(spark, path, sources, UNTIL_IDLE, build=Builds())
        await run_traffic(relay, clock, rounds=1)
        fresh = StreamOptions(until_idle=True, checkpoint=str(tmp_path / "elsewhere"))
        stream(spark, path, sources, fresh, build=Builds())
    numbers = [row["seq"] for row in rows_of(open_lake(spark, path))]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_stopped_stream_builds_the_tables_and_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    sources = parse_sources([str(tmp_path / "data")])
    path = str(tmp_path / "lake")
    stop, builds = threading.Event(), Builds()

    def build_then_stop(lake: Lake) -> None:
        builds(lake)
        stop.set()

    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        options = StreamOptions(every_s=0.1, build_every_s=0.0)
        summary = stream(spark, path, sources, options, stop=stop, build=build_then_stop)
    assert summary.last_seq == {"data": summary.events}
    assert builds.versions == [1]
    assert not open_lake(spark, path).manifest.unbuilt


@pytest.mark.slow
async def test_events_are_committed_while_a_build_runs_and_are_in_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock, path = ManualClock(START_US), str(tmp_path / "lake")
    sources = parse_sources([str(tmp_path / "data")])
    stop, is_building, goes_on = threading.Event(), threading.Event(), threading.Event()

    def version() -> int:
        return open_lake(spark, path, create=True).manifest.version

    def slow_build(lake: Lake) -> None:
        is_building.set()
        assert goes_on.wait(WAITS_S)
        build(lake)

    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        options = StreamOptions(every_s=0.1, build_every_s=0.0)
        following = threading.Thread(
            target=stream,
            args=(spark, path, sources, options),
            kwargs={"stop": stop, "build": slow_build},
        )
        following.start()
        try:
            await eventually(is_building.is_set, "a build", timeout_s=WAITS_S)
            begun = version()
            await run_traffic(relay, clock, rounds=1)
            await eventually(lambda: version() > begun, "more events", timeout_s=WAITS_S)
            goes_on.set()
            await eventually(
                lambda: not open_lake(spark, path).manifest.unbuilt,
                "a build without events after it",
                timeout_s=WAITS_S,
            )
        finally:
            goes_on.set()
            stop.set()
            following.join()
    quiet = ingested(spark, tmp_path / "quiet", sources)
    build(quiet)
    streamed = open_lake(spark, path)
    for table in ("messages", "traffic", "pairs"):
        assert table_rows(streamed, table) == table_rows(quiet, table)


async def test_many_small_batches_are_merged_by_a_build(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    sources = parse_sources([str(tmp_path / "data")])
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
    whole = ingested(spark, tmp_path / "whole", sources)
    events = whole.read("events", EVENTS)
    path = str(tmp_path / "lake")
    for first in range(1, 61, 10):
        ingest_batch(events.where(f"seq between {first} and {first + 9}"), path)
    lake = open_lake(spark, path, upkeep=Upkeep(small_files_max=4))
    assert len(lake.manifest.tables[EVENTS_TABLE]) >= 6
    build(lake)
    assert len(lake.manifest.tables[EVENTS_TABLE]) == 1
    lake = ingest_batch(events, path)
    assert rows_of(lake) == rows_of(whole)
    assert lake.manifest.relays["data"][1].events == whole.manifest.relays["data"][1].events


def test_a_stream_without_a_journal_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    sources = parse_sources([str(tmp_path / "nothing")])
    with pytest.raises(JournalUnusable, match="no journal at"):
        stream(spark, str(tmp_path / "lake"), sources, UNTIL_IDLE, build=Builds())
