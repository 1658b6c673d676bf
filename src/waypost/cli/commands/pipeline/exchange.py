"""`import-trace` and `restore`: history from elsewhere, and back into a relay."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.commands.pipeline.options import LakeOption
from waypost.cli.commands.pipeline.running import running
from waypost.cli.options import DEFAULT_DATA_DIR, JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice


def import_trace(  # noqa: PLR0913 - each is something one may choose
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of: src dst time [size].")],
    lake: LakeOption,
    size: Annotated[
        int, typer.Option("--size", min=0, metavar="BYTES", help="Of messages without a size.")
    ] = 1024,
    drain: Annotated[
        str,
        typer.Option(
            "--drain",
            metavar="SECONDS|next-activity",
            help="When a message is read: so much later, or when its recipient next writes.",
        ),
    ] = "next-activity",
    relay: Annotated[
        str | None,
        typer.Option(
            "--relay", metavar="NAME", help="What to call it.", show_default="as the file is"
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Take other people's traffic into the lake, to try settings on it.

    Each line is one message: who wrote to whom, when (Unix seconds), and how
    many bytes if that is known. Then 'waypost pipeline backtest' tells what a
    relay would have refused.
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.jobs.import_trace import import_trace as take_in
    from waypost.pipeline.lake.lake import open_lake

    when = _drain(drain)
    with running(spark) as job, job.step("reading the trace"):
        summary = take_in(open_lake(job.spark, lake, create=True), file, size, when, relay)
    if json:
        console.print_json(summary)
    else:
        pipeline.show_trace(summary, lake)


def restore(
    *,
    lake: LakeOption,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            envvar="WAYPOST_DATA_DIR",
            help="The relay that should know its agents again. It must not be running.",
        ),
    ] = DEFAULT_DATA_DIR,
    relay: Annotated[
        str | None,
        typer.Option(
            "--relay", metavar="NAME", help="Whose memory to take.", show_default="the only one"
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Give a relay back who has written to whom, so that tiers are as they were.

    For a relay that lost its data directory, or a new one in the place of an old
    one. What it has seen itself since then stays.
    """
    from waypost.cli.local import Directory
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.jobs.restore import last_seen_pairs
    from waypost.pipeline.lake.lake import open_lake

    with running(spark) as job, job.step("asking the tables"):
        name, pairs = last_seen_pairs(open_lake(job.spark, lake), relay)
    news = Directory(data_dir).remember_pairs(pairs)
    facts = {"relay": name, "pairs": len(pairs), "restored": news, "data_dir": str(data_dir)}
    if json:
        console.print_json(facts)
    else:
        pipeline.show_restored(facts)


def _drain(given: str) -> float | str:
    if given == "next-activity":
        return given
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(
            f"--drain {given} is neither a number of seconds nor next-activity"
        ) from None
