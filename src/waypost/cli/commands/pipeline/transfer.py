"""`import-trace` and `restore`: traces into the lake, and pairs from it into a relay."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.commands.pipeline.job import start_job
from waypost.cli.commands.pipeline.options import LakeOption
from waypost.cli.options import DEFAULT_DATA_DIR, JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice


def import_trace(  # noqa: PLR0913 - one parameter per option
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Trace, a line per message: src dst time (size).")
    ],
    lake: LakeOption,
    size: Annotated[
        int, typer.Option("--size", min=0, metavar="BYTES", help="Size of messages without one.")
    ] = 1024,
    drain: Annotated[
        str,
        typer.Option(
            "--drain",
            metavar="SECONDS|next-activity",
            help="When messages are read: after SECONDS, or when the recipient next writes.",
        ),
    ] = "next-activity",
    relay: Annotated[
        str | None,
        typer.Option(
            "--relay",
            metavar="NAME",
            help="Name of the relay in the lake.",
            show_default="the file name",
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Import a trace of messages into the lake, to try settings on it.

    Each line is one message: sender, recipient, time (Unix seconds), and its
    size in bytes if known. Then 'waypost pipeline backtest' shows which messages
    a relay would have rejected.

    \b
    Example:
      waypost pipeline import-trace ./trace.txt --lake ./lake --drain 60
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.jobs.import_trace import import_trace as run

    when = _drain(drain)
    with start_job(spark) as job, job.step("reading the trace"):
        summary = run(job.open_lake(lake, create=True), job.path(file), size, when, relay)
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
            help="Data directory of the relay to restore. It must not be running.",
        ),
    ] = DEFAULT_DATA_DIR,
    relay: Annotated[
        str | None,
        typer.Option(
            "--relay", metavar="NAME", help="Relay in the lake.", show_default="the only one"
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Restore which senders wrote to which recipients, and with it their tiers.

    For a relay that lost its data directory, or a new relay that replaces an old
    one. Pairs that the relay has seen since then stay.

    \b
    Example:
      waypost pipeline restore --lake ./lake --data-dir ./waypost-data
    """
    from waypost.cli.local import LocalRelay
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.jobs.restore import last_seen_pairs

    with start_job(spark) as job, job.step("reading the tables"):
        name, pairs = last_seen_pairs(job.open_lake(lake), relay)
    restored = LocalRelay(data_dir).remember_pairs(pairs)
    result = {
        "relay": name,
        "pairs": len(pairs),
        "restored": restored,
        "data_dir": str(data_dir),
    }
    if json:
        console.print_json(result)
    else:
        pipeline.show_restored(result)


def _drain(given: str) -> float | str:
    if given == "next-activity":
        return given
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(
            f"--drain {given} is invalid: give a number of seconds, or next-activity"
        ) from None
