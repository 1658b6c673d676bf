"""Run the pipeline over the journal: tables, report and replay.

    python -m examples.demo.history DATA_DIR < ids-of-messages.json > history.json

Spark starts threads and a JVM, so it runs in a process of its own that can be killed.
"""

import asyncio
import sys
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
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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


async def read_history(data_dir: Path, confirmed: dict[str, int]) -> History:
    """Read the journal in `data_dir` while its relay runs; this takes about half a minute.

    `confirmed` maps message ids to the number of their mailboxes.
    """
    job = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.demo.history",
        str(data_dir),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to this process, which kills the job
    )
    try:
        found, _ = await job.communicate(msgspec.json.encode(list(confirmed)))
    finally:
        if job.returncode is None:
            job.kill()
            await job.wait()
    if job.returncode:
        raise SystemExit(job.returncode)  # the job printed why
    return msgspec.json.decode(found, type=History)


def run_pipeline(data_dir: Path, wanted: set[str]) -> History:
    """Run every step in one Spark session."""
    lake_dir = data_dir / "lake"
    with start_job(SMALL) as job:
        with job.step("building tables from the journal"):
            lake = open_lake(job.spark, str(lake_dir), create=True)
            ingested = ingest(lake, parse_sources([str(data_dir)]))
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
        events=ingested.events,
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


if __name__ == "__main__":
    ids = set(msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]))
    sys.stdout.buffer.write(msgspec.json.encode(run_pipeline(Path(sys.argv[1]), ids)))
