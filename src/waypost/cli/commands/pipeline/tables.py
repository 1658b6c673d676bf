"""`run`, `ingest`, `build`, `stream`, `report`: from journals to tables to a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.commands.pipeline.options import JournalOption, LakeOption
from waypost.cli.commands.pipeline.running import running
from waypost.cli.options import JsonOption

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="The page to write.", show_default="LAKE/report.html"
    ),
]


def run(
    *,
    journal: JournalOption,
    lake: LakeOption,
    report: ReportOption = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Journals to tables to a report, in one go: ingest, build, report.

    Only what is new since the last time is read and only days it touches are
    written anew, so this can run every hour. Killed at any moment and run again,
    it ends the same.

    \b
    Examples:
      waypost pipeline run --journal ./waypost-data --lake ./lake
      waypost pipeline run --journal east=/srv/east --journal west=/srv/west --lake /srv/lake
      waypost pipeline run --journal /srv/relay --lake /srv/lake --master spark://host:7077
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.ingest.job import ingest as take_in
    from waypost.pipeline.journal.sources import parse_sources
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.reports.report import write_report
    from waypost.pipeline.tables.build import build as build_tables

    places = parse_sources(journal)
    page = report or _beside(lake)
    with running(spark) as job:
        with job.step("reading journals"):
            opened = open_lake(job.spark, lake, create=True)
            ingested = take_in(opened, places)
        with job.step("building tables"):
            built = build_tables(opened)
        with job.step("writing the report"):
            written = write_report(opened, page)
    if json:
        console.print_json({"ingested": ingested, "built": built, "report": written})
        return
    pipeline.show_ingested(ingested)
    pipeline.show_built(built)
    pipeline.show_report(written)


def ingest(
    *,
    journal: JournalOption,
    lake: LakeOption,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Take journals into the table 'events', each line exactly once.

    A relay may be running: what it has committed is read, the rest next time.
    Lines that cannot be read are counted and kept in LAKE/corrupt.
    """
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.ingest.job import ingest as take_in
    from waypost.pipeline.journal.sources import parse_sources
    from waypost.pipeline.lake.lake import open_lake

    places = parse_sources(journal)
    with running(spark) as job, job.step("reading journals"):
        summary = take_in(open_lake(job.spark, lake, create=True), places)
    _tell(summary, pipeline.show_ingested, json)


def build(*, lake: LakeOption, json: JsonOption = False, spark: "SparkChoice") -> None:
    """Bring all tables up to date with 'events'; only days that are touched are written."""
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.tables.build import build as build_tables

    with running(spark) as job, job.step("building tables"):
        summary = build_tables(open_lake(job.spark, lake))
    _tell(summary, pipeline.show_built, json)


def report(
    *,
    lake: LakeOption,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page.", show_default="LAKE/report.html"),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Write one HTML page about everything in the lake, and print the same facts.

    The page needs no network and no other file; send it to whoever should see it.
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.reports.queries import query_report_data
    from waypost.pipeline.reports.report import write_page
    from waypost.pipeline.reports.terminal import render

    with running(spark) as job, job.step("asking the tables"):
        facts = query_report_data(open_lake(job.spark, lake))
    written = write_page(facts, out or _beside(lake))
    if json:
        console.print_json({"report": written, "facts": facts})
        return
    screen = console.console()
    for part in render(facts):
        screen.print(part)
    pipeline.show_report(written)


def stream(  # noqa: PLR0913 - each is something one may choose
    *,
    journal: JournalOption,
    lake: LakeOption,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
    build_every: Annotated[
        float,
        typer.Option("--build-every", min=0, metavar="SECONDS", help="How often to build tables."),
    ] = 15.0,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Where it notes how far it is.",
            show_default="in the lake",
        ),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Take in what is there, build, and end.")
    ] = False,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Follow live relays, a few seconds behind, until Ctrl-C.

    Reads segments that are still open, too. Can be stopped or killed at any
    moment and started again; the tables are those that 'run' would make.
    """
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.jobs.stream import StreamOptions, stop_on_signals
    from waypost.pipeline.jobs.stream import stream as follow
    from waypost.pipeline.journal.sources import parse_sources

    places = parse_sources(journal)
    options = StreamOptions(
        checkpoint=checkpoint, every_s=every, build_every_s=build_every, until_idle=until_idle
    )
    with running(spark) as job, stop_on_signals() as stop, job.step("following"):
        summary = follow(job.spark, lake, places, options, stop=stop)
    _tell(summary, pipeline.show_streamed, json)


def _beside(lake: str) -> Path:
    """The page inside a lake that is a directory; beside the caller otherwise."""
    return Path("report.html") if "://" in lake else Path(lake) / "report.html"


def _tell(summary: Any, show: Any, json: bool) -> None:
    from waypost.cli.rendering import console

    if json:
        console.print_json(summary)
    else:
        show(summary)
