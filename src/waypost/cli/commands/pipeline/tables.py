"""`run`, `ingest`, `build`, `stream`, `report`, `convert`: journals, tables and the report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.commands.pipeline.job import start_job
from waypost.cli.commands.pipeline.options import JournalOption, LakeOption
from waypost.cli.options import JsonOption

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="HTML page to write.", show_default="LAKE/report.html"
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
    """Ingest journals, build the tables and write the report.

    Only new journal lines are read and only affected days are rewritten, so this
    can run every hour. It can be killed at any moment and run again.

    With 'pip install "waypost[lake]"', other engines read the tables as Delta
    tables.

    \b
    Examples:
      waypost pipeline run --journal ./waypost-data --lake ./lake
      waypost pipeline run --journal east=/srv/east --journal west=/srv/west --lake /srv/lake
      waypost pipeline run --journal /srv/relay --lake /srv/lake --master spark://host:7077
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.ingest.job import ingest as ingest_journals
    from waypost.pipeline.journal.sources import parse_sources
    from waypost.pipeline.reports.report import write_report
    from waypost.pipeline.tables.build import build as build_tables

    sources = parse_sources(journal)
    page = report or _default_page(lake)
    with start_job(spark) as job:
        with job.step("reading journals"):
            opened = job.open_lake(lake, create=True)
            ingested = ingest_journals(opened, job.journals(sources))
        with job.step("building tables"):
            built = build_tables(opened)
            built.notes = [one for one in built.notes if one not in ingested.notes]
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
    """Read journals into the table 'events', each line exactly once.

    A relay may be running: its committed lines are read now, the rest next time.
    Unreadable lines are counted and kept in LAKE/corrupt.

    \b
    Example:
      waypost pipeline ingest --journal ./waypost-data --lake ./lake
    """
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.ingest.job import ingest as ingest_journals
    from waypost.pipeline.journal.sources import parse_sources

    sources = parse_sources(journal)
    with start_job(spark) as job, job.step("reading journals"):
        summary = ingest_journals(job.open_lake(lake, create=True), job.journals(sources))
    _print_summary(summary, pipeline.show_ingested, json)


def build(*, lake: LakeOption, json: JsonOption = False, spark: "SparkChoice") -> None:
    """Build all tables from 'events', rewriting only affected days.

    With 'pip install "waypost[lake]"', other engines read them as Delta tables.

    \b
    Example:
      waypost pipeline build --lake ./lake
    """
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.tables.build import build as build_tables

    with start_job(spark) as job, job.step("building tables"):
        summary = build_tables(job.open_lake(lake))
    _print_summary(summary, pipeline.show_built, json)


def convert(*, lake: LakeOption, json: JsonOption = False, spark: "SparkChoice") -> None:
    """Convert a lake that an earlier version wrote, with a directory for each day.

    Its events are written to a few large files and the tables built from them.
    It can be killed at any moment and run again; a second run changes nothing.

    \b
    Example:
      waypost pipeline convert --lake ./lake
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.jobs.convert import convert as convert_events
    from waypost.pipeline.tables.build import build as build_tables

    with start_job(spark) as job:
        with job.step("converting events"):
            converted = convert_events(job.spark, job.path(lake))
        with job.step("building tables"):
            built = build_tables(job.open_lake(lake))
    if json:
        console.print_json({"converted": converted, "built": built})
        return
    pipeline.show_converted(converted)
    pipeline.show_built(built)


def report(
    *,
    lake: LakeOption,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="HTML page to write.", show_default="LAKE/report.html"
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Write one HTML page about the whole lake, and print a summary.

    The page is one file that needs no network.

    \b
    Example:
      waypost pipeline report --lake ./lake --out report.html
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.reports.queries import query_report_data
    from waypost.pipeline.reports.report import write_page
    from waypost.pipeline.reports.terminal import render

    with start_job(spark) as job, job.step("reading the tables"):
        facts = query_report_data(job.open_lake(lake))
    written = write_page(facts, out or _default_page(lake))
    if json:
        console.print_json({"report": written, "facts": facts})
        return
    screen = console.console()
    for part in render(facts):
        screen.print(part)
    pipeline.show_report(written)


def stream(  # noqa: PLR0913 - one parameter per option
    *,
    journal: JournalOption,
    lake: LakeOption,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Poll interval.")
    ] = 2.0,
    build_every: Annotated[
        float,
        typer.Option(
            "--build-every", min=0, metavar="SECONDS", help="Pause between builds of the tables."
        ),
    ] = 15.0,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Directory for the progress of the stream.",
            show_default="in the lake",
        ),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Read everything available, build, and stop.")
    ] = False,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Follow running relays, a few seconds behind, until Ctrl-C.

    Reads open segments, too. It can be stopped or killed at any moment and
    started again; the tables are the same as those of 'waypost pipeline run'.

    \b
    Example:
      waypost pipeline stream --journal ./waypost-data --lake ./lake
    """
    from waypost.cli.rendering import pipeline
    from waypost.pipeline.jobs.stream import STREAM_SETTINGS, StreamOptions, stop_on_signals
    from waypost.pipeline.jobs.stream import stream as run_stream
    from waypost.pipeline.journal.sources import parse_sources

    sources = parse_sources(journal)
    options = StreamOptions(
        checkpoint=checkpoint, every_s=every, build_every_s=build_every, until_idle=until_idle
    )
    choice = spark.for_stream(STREAM_SETTINGS)
    with start_job(choice) as job, stop_on_signals() as stop, job.step("following"):
        summary = run_stream(job.spark, lake, sources, options, stop=stop)
    _print_summary(summary, pipeline.show_streamed, json)


def _default_page(lake: str) -> Path:
    """Return the page in the lake, or in the current directory if the lake is a URL."""
    return Path("report.html") if "://" in lake else Path(lake) / "report.html"


def _print_summary(summary: Any, show: Any, json: bool) -> None:
    from waypost.cli.rendering import console

    if json:
        console.print_json(summary)
    else:
        show(summary)
