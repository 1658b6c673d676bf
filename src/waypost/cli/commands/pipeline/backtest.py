"""`backtest` and `recommend`: replay history under other settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.commands.pipeline.job import start_job
from waypost.cli.commands.pipeline.options import LakeOption
from waypost.cli.options import JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice

SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings to change, in the format of config.json.",
        show_default="none: replay as recorded",
    ),
]


def backtest(
    *,
    lake: LakeOption,
    settings: SettingsOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write every decision to DIR as Parquet; replaces an earlier result there.",
        ),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Replay all recorded messages under other settings.

    The relay's own policy runs over history, and every decision that differs is
    counted. Without --settings every message is replayed and no decision differs:
    that checks the replay itself. With --settings, messages that the recorded
    values prove unaffected are not replayed. The result is also written to the
    lake, for the dashboard.

    DIR of --out must be new, empty or an earlier result, and outside the lake.

    \b
    Examples:
      waypost pipeline backtest --lake ./lake
      waypost pipeline backtest --lake ./lake --settings tighter.json --out ./decisions
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.replay.backtest import backtest as replay
    from waypost.pipeline.replay.backtest import require_replaceable, save_result

    changes = _read(settings)
    if out is not None:
        require_replaceable(out, lake)  # before the seconds in which Spark starts
    with start_job(spark.for_replay()) as job, job.step("replaying"):
        # Without changes the point is to check the replay: take no shortcuts.
        opened = job.open_lake(lake)
        decisions = None if out is None else job.path(out)
        result = replay(opened, changes, decisions, shortcut=changes is not None)
        save_result(opened, result)
    if json:
        console.print_json(result)
    else:
        pipeline.show_backtest(result)


def recommend(
    *,
    lake: LakeOption,
    reject_at_most: Annotated[
        float,
        typer.Option(
            "--reject-at-most",
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of wanted messages that may be rejected.",
        ),
    ] = 0.001,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Find the tightest limits that hardly affect wanted messages.

    Wanted are messages from senders that the recipient has written to, unless
    the table 'anomalies' lists them. Shows how many messages each limit would
    have rejected, and checks the chosen limits with a backtest.

    \b
    Example:
      waypost pipeline recommend --lake ./lake --reject-at-most 0.001
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.replay.recommend import recommend as run

    with start_job(spark) as job, job.step("comparing limits"):
        result = run(job.open_lake(lake), reject_at_most)
    if json:
        console.print_json(result)
    else:
        pipeline.show_recommendation(result)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InvalidInput(f"cannot read --settings {path}: {problem.strerror}") from None
