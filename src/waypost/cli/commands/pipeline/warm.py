"""`warm` and `serve`: prepare Java, or keep Spark running, so that jobs start sooner."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.commands.pipeline.job import start_job
from waypost.cli.commands.pipeline.options import require_pipeline
from waypost.cli.options import JsonOption, parse_duration

_SAMPLE_MESSAGES = 300

IdleOption = Annotated[
    str,
    typer.Option(
        "--idle",
        metavar="DURATION",
        help="Stop after this time without a job.",
    ),
]


def warm(*, json: JsonOption = False) -> None:
    """Make the class archive that lets Spark start with less work.

    Runs a small job and keeps the classes of Spark as Java has prepared them, in
    ~/.cache/waypost (about 200 MB). The first job on a machine starts this in the
    background. It is made again for another version of Java or PySpark.

    \b
    Example:
      waypost pipeline warm
    """
    require_pipeline()
    from waypost.cli.rendering import console
    from waypost.pipeline.spark.cache import archive_path, is_complete, require_cache_directory
    from waypost.pipeline.spark.class_archive import archive_classes
    from waypost.pipeline.spark.java import require_java

    cache = require_cache_directory(os.environ)
    archive = archive_path(cache, require_java(os.environ), os.environ)
    if not is_complete(archive):
        with archive_classes(archive) as options:
            _run_sample(options)
    result = {"archive": str(archive), "bytes": archive.stat().st_size}
    if json:
        console.print_json(result)
    else:
        console.console().print(
            f"Spark starts with the class archive {archive} ({result['bytes']:,} bytes).",
            soft_wrap=True,
        )


def serve(*, idle: IdleOption = "30m") -> None:
    """Keep Spark running for other pipeline commands, until Ctrl-C.

    Other 'waypost pipeline' commands of the same user on this machine find it and
    use it. It listens on loopback and requires a token that only you can read.
    Commands with --master, --remote, --conf, --spark-log or --no-server start
    their own Spark, as 'stream' always does.

    \b
    Example:
      waypost pipeline serve --idle 2h
    """
    require_pipeline()
    idle_s = parse_duration(idle).total_seconds()
    from waypost.cli.rendering import console
    from waypost.pipeline.jobs.stream import stop_on_signals
    from waypost.pipeline.spark.server import serve as run
    from waypost.pipeline.spark.session import ServerState

    def ready(server: ServerState) -> None:
        console.note(f"Spark is ready for other commands (pid {server.pid}); stop with Ctrl-C")

    with stop_on_signals() as stop:
        if run(os.environ, idle_s, stop, ready):
            console.note("no job for a while: Spark ends (--idle)")


def _run_sample(java_options: str) -> None:
    """Run every kind of job once on a few messages, so that their classes are loaded."""
    from waypost.pipeline.ingest.job import ingest
    from waypost.pipeline.journal.sources import parse_sources
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.replay.backtest import backtest
    from waypost.pipeline.reports.report import write_report
    from waypost.pipeline.spark.session import JAVA_OPTIONS, SparkChoice
    from waypost.pipeline.tables.build import build
    from waypost.simulate import SimulationOptions, simulate

    choice = SparkChoice(conf={JAVA_OPTIONS: java_options}, events=_SAMPLE_MESSAGES)
    with tempfile.TemporaryDirectory(prefix="waypost-warm-") as scratch, start_job(choice) as job:
        with job.step("reading a sample"):
            simulate(SimulationOptions(messages=_SAMPLE_MESSAGES, out=Path(scratch, "sample")))
            lake = open_lake(job.spark, f"{scratch}/lake", create=True)
            ingest(lake, parse_sources([f"{scratch}/sample"]))
        with job.step("building its tables"):
            build(lake)
        with job.step("writing its report"):
            write_report(lake, Path(scratch, "report.html"))
        with job.step("replaying it"):
            backtest(lake, b'{"reliability": {"rateLimit": {"maxPerWindow": 10}}}')
