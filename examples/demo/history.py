"""Run the pipeline over the journal: tables, report and replay.

    python -m examples.demo.history DATA_DIR < ids-of-messages.json > history.json

Spark starts threads and a JVM, so it runs in a process of its own that can be killed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from waypost.cli.commands.pipeline.job import start_job
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest, save_result
from waypost.pipeline.reports.report import write_report
from waypost.pipeline.spark.session import SparkChoice
from waypost.pipeline.tables import messages
from waypost.pipeline.tables.build import build

STRICTER = b'{"reliability": {"rateLimit": {"maxPerWindow": 50}}}'
# Tuned for a few thousand events: settings that help with millions only add start-up time.
SMALL = SparkChoice(
    conf={
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # to compile a class takes longer than rows
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        " -XX:+UseSerialGC",
    }
)


class History(msgspec.Struct, frozen=True):
    """Results of the pipeline. `states` counts the confirmed messages by their state."""

    events: int
    headline: str
    report: str
    states: dict[str, int]
    decided: int
    differences: int
    differences_if_stricter: int

    @property
    def found(self) -> int:
        """The number of confirmed messages found, in any state."""
        return sum(self.states.values())


class HistoryJob:
    """The pipeline in a process of its own: it starts while the agents talk, then reads all."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self, confirmed: Mapping[str, int]) -> History:
        """Read the whole journal; `confirmed` maps message ids to the number of their mailboxes."""
        found, _ = await self._process.communicate(msgspec.json.encode(list(confirmed)))
        if self._process.returncode:
            raise SystemExit(self._process.returncode)  # the job printed why
        return msgspec.json.decode(found, type=History)


@asynccontextmanager
async def start_history(data_dir: Path) -> AsyncIterator[HistoryJob]:
    """Start the pipeline for the journal in `data_dir`, whose relay runs; kill it on exit."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.demo.history",
        str(data_dir),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to this process, which kills the job
    )
    try:
        yield HistoryJob(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def run_pipeline(data_dir: Path, wait_for_ids: Callable[[], set[str]]) -> History:
    """Run every step in one Spark session, which starts while agents still talk."""
    lake_dir, sources = data_dir / "lake", parse_sources([str(data_dir)])
    with start_job(SMALL) as job:
        wanted = wait_for_ids()
        with job.step("building tables from the journal"):
            lake = open_lake(job.spark, str(lake_dir), create=True)
            ingest(lake, sources)
            build(lake)
        with job.step("looking up confirmed messages"):
            states = count_states(lake, wanted)
        with job.step("writing the report"):
            report = write_report(lake, lake_dir / "report.html")
        with job.step("replaying every decision"):
            same = backtest(lake)
            stricter = backtest(lake, STRICTER)
            save_result(lake, stricter)
    return History(
        events=lake.manifest.events,
        headline=report.headline,
        report=report.path,
        states=states,
        decided=same.messages,
        differences=same.differences,
        differences_if_stricter=stricter.differences,
    )


def count_states(lake: Lake, wanted: set[str]) -> dict[str, int]:
    """Count the wanted messages in the tables by their state."""
    states = dict.fromkeys(("acked", "pending", "dead"), 0)
    for row in lake.read(messages.NAME, messages.SCHEMA).select("id", "state").collect():
        if row.id in wanted:
            states[row.state] = states.get(row.state, 0) + 1
    return states


def read_ids() -> set[str]:
    """Return the ids on standard input. Exits if there are none: the demo was stopped."""
    given = sys.stdin.buffer.read()
    if not given:
        raise SystemExit(1)
    return set(msgspec.json.decode(given, type=list[str]))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run_pipeline(Path(sys.argv[1]), read_ids)))
