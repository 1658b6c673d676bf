"""What just happened, as tables, as a page, and decided again: the pipeline over the journal.

    python -m examples.demo.history DATA_DIR < ids-of-messages.json > history.json

Spark has its threads and a Java of its own, so it has a process of its own: one that can be ended.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from waypost.cli.commands.pipeline.job import start_job
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest, remember
from waypost.pipeline.reports.report import write_report
from waypost.pipeline.spark.session import SparkChoice
from waypost.pipeline.tables import messages
from waypost.pipeline.tables.build import build

STRICTER = b'{"reliability": {"rateLimit": {"maxPerWindow": 50}}}'
# Some thousand events: what pays off for millions only takes longer to begin and to end.
LITTLE = SparkChoice(
    conf={
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
)


class History(msgspec.Struct, frozen=True):
    """What the pipeline found. `states`: what became of the messages that it was asked for."""

    events: int
    headline: str
    report: str
    states: dict[str, int]
    decided: int
    differences: int
    differences_if_stricter: int

    @property
    def found(self) -> int:
        """All of them, whatever became of them."""
        return sum(self.states.values())


async def read_history(data_dir: Path, confirmed: dict[str, int]) -> History:
    """Read the journal in `data_dir` while its relay goes on; about half a minute.

    `confirmed`: message id → how many mailboxes took it.
    """
    job = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.demo.history", str(data_dir)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us, and we end it
    )
    try:
        found, _ = await job.communicate(msgspec.json.encode(list(confirmed)))
    finally:
        if job.returncode is None:
            job.kill()
            await job.wait()
    if job.returncode:
        raise SystemExit(job.returncode)  # it has said why
    return msgspec.json.decode(found, type=History)


def run_pipeline(data_dir: Path, wanted: set[str]) -> History:
    """Every step, in one session of Spark."""
    lake_dir = data_dir / "lake"
    with start_job(LITTLE) as job:
        with job.step("building tables from the journal"):
            lake = open_lake(job.spark, str(lake_dir), create=True)
            ingested = ingest(lake, parse_sources([str(data_dir)]))
            build(lake)
        with job.step("looking for what was confirmed"):
            states = look_for(lake, wanted)
        with job.step("writing the report"):
            report = write_report(lake, lake_dir / "report.html")
        with job.step("deciding everything again"):
            same = backtest(lake)
            stricter = backtest(lake, STRICTER)
            remember(lake, stricter)
    return History(
        events=ingested.events,
        headline=report.headline,
        report=report.path,
        states=states,
        decided=same.messages,
        differences=same.differences,
        differences_if_stricter=stricter.differences,
    )


def look_for(lake: Lake, wanted: set[str]) -> dict[str, int]:
    """How many of the wanted messages the tables know, by what became of them."""
    states = dict.fromkeys(("acked", "pending", "dead"), 0)
    for row in lake.read(messages.NAME, messages.SCHEMA).select("id", "state").collect():
        if row.id in wanted:
            states[row.state] = states.get(row.state, 0) + 1
    return states


if __name__ == "__main__":
    asked = set(msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]))
    sys.stdout.buffer.write(msgspec.json.encode(run_pipeline(Path(sys.argv[1]), asked)))
