"""A stream killed at any moment and restarted ends with the tables of an undisturbed run.

Meanwhile a reader of `events` sees whole versions.

`WAYPOST_KILLS` says how often it is killed.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.eventually import eventually_blocking
from tests.faults.seeds import seeded
from tests.pipeline.conftest import QUICK
from tests.pipeline.datasource.scenarios import START_US, relay_at, run_traffic
from tests.pipeline.delta.looping_reader import holds_each_event_once, looping_reader
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.stream import StreamOptions, stream
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.tables.build import build
from waypost.testing import ManualClock

KILLS = int(os.environ.get("WAYPOST_KILLS", "1"))
STARTS_WITHIN_S = 180.0
KILLED_WITHIN_S = 4.0

FOLLOWER = """
import json
import os
import sys
from pathlib import Path
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.spark.session import SparkChoice, spark_session
from waypost.pipeline.jobs.stream import StreamOptions, stream

conf = json.loads(sys.argv[4])
with spark_session(SparkChoice(master="local[2]", conf=conf), os.environ) as spark:
    Path(sys.argv[3]).touch()
    options = StreamOptions(every_s=0.2, build_every_s=0.0)
    stream(spark, sys.argv[1], parse_sources([sys.argv[2]]), options)
"""


@contextmanager
def stream_process(lake: Path, data: Path, sign: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a stream during the block, then kill it: Python and Java at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, str(lake), str(data), str(sign), json.dumps(QUICK)],
        start_new_session=True,
    )
    try:
        eventually_blocking(
            lambda: sign.exists() or process.poll() is not None,
            "the start of the stream",
            timeout_s=STARTS_WITHIN_S,
        )
        assert process.poll() is None, f"the stream ended with {process.returncode}"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_while_it_runs(process: "subprocess.Popen[bytes]", for_s: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(for_s)
        raise AssertionError(f"the stream ended by itself with {process.returncode}")


def version_of(lake: Path) -> int:
    """Return the newest version of a lake, read without Spark."""
    texts = [path.read_text() for path in lake.glob("manifest/slot=*/part-*")]
    return max((json.loads(text)["version"] for text in texts), default=0)


def wait_for_version(lake: Path, version: int, process: "subprocess.Popen[bytes]") -> None:
    def is_there() -> bool:
        assert process.poll() is None, f"the stream ended with {process.returncode}"
        try:
            return version_of(lake) >= version
        except (OSError, ValueError):
            return False  # being written

    eventually_blocking(is_there, f"version {version} of the lake", timeout_s=STARTS_WITHIN_S)


def tables_of(lake: Lake) -> dict[str, list[str]]:
    """Return every row of every table, in an order independent of how it was written."""
    tables: dict[str, list[str]] = {}
    for table, files in lake.manifest.tables.items():
        paths = [f"{lake.path}/{table}/{file.path}" for file in files]
        tables[table] = []
        if not paths:
            continue
        rows = lake.spark.read.parquet(*paths)
        columns = sorted(rows.columns)
        tables[table] = sorted(str(row) for row in rows.select(*columns).collect())
    return tables


@pytest.mark.slow
async def test_a_stream_killed_at_random_moments_ends_with_the_same_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock, data, lake = ManualClock(START_US), tmp_path / "data", tmp_path / "lake"
    sources = parse_sources([str(data)])
    with seeded() as rng:
        async with relay_at(data, clock) as relay:
            await run_traffic(relay, clock, rounds=1)
            ingest(open_lake(spark, str(lake), create=True), sources)
            with looping_reader(lake / "events", "seq", tmp_path / "reads") as reads:
                for number in range(KILLS):
                    await run_traffic(relay, clock, rounds=1)
                    with stream_process(lake, data, tmp_path / f"started-{number}") as process:
                        reached = version_of(lake)
                        for further in range(rng.randrange(4)):  # commits before the kill
                            await run_traffic(relay, clock, rounds=1)
                            if rng.random() < 0.5:
                                await relay.seal_journal()
                            wait_for_version(lake, reached + further + 1, process)
                        wait_while_it_runs(process, rng.uniform(0.0, KILLED_WITHIN_S))
            await run_traffic(relay, clock, rounds=1)
        assert [read for read in reads.all() if not holds_each_event_once(read)] == []
        stream(spark, str(lake), sources, StreamOptions(until_idle=True))
        disturbed = open_lake(spark, str(lake))
        streamed = tables_of(disturbed)

        quiet = open_lake(spark, str(tmp_path / "quiet"), create=True)
        ingest(quiet, sources)
        build(quiet)
        assert streamed == tables_of(quiet)
        assert len(streamed["events"]) > 100
        assert ingest(disturbed, sources).events == 0
