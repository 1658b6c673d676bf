"""The journal as a DataFrame: `spark.read` and `spark.readStream` with format `waypost`."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.datasource.scenarios import START_US, relay_at, run_traffic
from waypost.pipeline.datasource import register
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import open_lake
from waypost.testing import ManualClock


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def rows_of(events: DataFrame) -> list[dict[str, Any]]:
    """Return the rows in order, with JSON texts decoded."""
    rows = [row.asDict(recursive=True) for row in events.orderBy("seq").collect()]
    for row in rows:
        for name in ("settings", "rules"):
            row[name] = row[name] and json.loads(row[name])
    return rows


async def test_the_source_reads_the_same_events_as_ingest(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=2)
        await relay.seal_journal()
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([str(tmp_path / "data")]))

    source = spark.read.format("waypost").load(str(tmp_path / "data"))
    assert source.schema == EVENTS
    read = rows_of(source)
    assert read == rows_of(lake.read("events", EVENTS))
    assert {"settings", "rules", "endpoint", "returned", "expired", "redriven"} <= {
        row["kind"] for row in read
    }


async def test_payloads_are_read_on_request_from_lines_and_body_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
    reader = spark.read.format("waypost").option("payload", "true").option("relay", "home")
    events = reader.load(str(tmp_path / "data")).where("kind in ('accepted', 'rejected')")
    rows = events.orderBy("seq").collect()
    payloads = [row.payload and json.loads(row.payload) for row in rows]
    assert payloads[0] == {"n": 0, "word": "grüße\n"}
    assert payloads.count("x" * 6000) == 2  # large ones are in the body file
    assert [1, {"payload": '"'}] in payloads
    assert {row.relay for row in rows} == {"home"}


async def test_an_unfinished_batch_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock(START_US)
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
    events = spark.read.format("waypost").load(str(tmp_path / "data"))
    before = events.count()
    (segment,) = (tmp_path / "data" / "journal").glob("*.open")
    with segment.open("ab") as file:
        file.write(b'{"kind":"acked","seq":9999,"at_us":1,"id":"x","endpoint":"agent.a"}\n')
    assert events.count() == before > 30


async def test_damage_ends_the_job_unless_it_may_be_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    async with relay_at(tmp_path / "data", clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
    reader = spark.read.format("waypost")
    before = reader.load(str(tmp_path / "data")).count()
    segment = min((tmp_path / "data" / "journal").glob("*.jsonl"))
    data = segment.read_bytes()
    offset = data.index(b'"agent.f0"')
    segment.write_bytes(data[:offset] + b"#" + data[offset + 1 :])
    with pytest.raises(PySparkException, match=f"{segment.name} is damaged"):
        reader.load(str(tmp_path / "data")).count()
    rest = reader.option("damaged", "skip").load(str(tmp_path / "data"))
    assert 0 < rest.count() < before


def test_a_directory_without_a_journal_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no journal at"):
        spark.read.format("waypost").load(str(tmp_path)).count()


class Follower:
    """A streaming query that copies a journal into Parquet files."""

    def __init__(self, spark: SparkSession, data: Path, scratch: Path) -> None:
        self.spark = spark
        self.data = data
        self.scratch = scratch

    def catch_up(self) -> list[int]:
        """Continue from the checkpoint to the end; returns the seq of every event read so far."""
        followed = self.spark.readStream.format("waypost").load(str(self.data))
        query = (
            followed.writeStream.format("parquet")
            .option("checkpointLocation", str(self.scratch / "checkpoint"))
            .option("path", str(self.scratch / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = self.spark.read.parquet(str(self.scratch / "out")).select("seq").collect()
        return sorted(row.seq for row in rows)


async def test_following_a_live_relay_neither_loses_nor_duplicates_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    data = tmp_path / "data"
    follower = Follower(spark, data, tmp_path)
    seen = []
    async with relay_at(data, clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        seen.append(follower.catch_up())
        await run_traffic(relay, clock, rounds=1)  # more in the same segment
        seen.append(follower.catch_up())
        await relay.seal_journal()  # renames the segment; two further ones follow
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
        await run_traffic(relay, clock, rounds=1)
        seen.append(follower.catch_up())
    async with relay_at(data, clock) as relay:  # the relay restarts
        await run_traffic(relay, clock, rounds=1)
    seen.append(follower.catch_up())
    everything = spark.read.format("waypost").load(str(data)).count()
    assert [len(one) for one in seen] == sorted({len(one) for one in seen})
    assert all(one == list(range(1, len(one) + 1)) for one in seen)
    assert len(seen[-1]) == everything


async def test_a_segment_deleted_before_it_was_read_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(START_US)
    data = tmp_path / "data"
    follower = Follower(spark, data, tmp_path)
    async with relay_at(data, clock) as relay:
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
        follower.catch_up()
        await run_traffic(relay, clock, rounds=1)
        (data / "journal" / f"{1:020d}.jsonl").unlink()  # after all of it was read
        caught_up = follower.catch_up()
        await relay.seal_journal()
        await run_traffic(relay, clock, rounds=1)
        await relay.seal_journal()
        await run_traffic(relay, clock, rounds=1)
    assert caught_up == list(range(1, len(caught_up) + 1))
    for path in (data / "journal").glob("*.jsonl"):
        path.unlink()
    with pytest.raises(PySparkException, match="deleted them before they were read"):
        follower.catch_up()
