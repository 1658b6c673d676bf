"""`backtest` and `recommend`: history under other settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.commands.pipeline.options import LakeOption
from waypost.cli.commands.pipeline.running import running
from waypost.cli.options import JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice

SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="What to change, as in config.json; all else stays as it was.",
        show_default="nothing: history as it was",
    ),
]


def backtest(
    *,
    lake: LakeOption,
    settings: SettingsOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Write every decision there, as Parquet."),
    ] = None,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Decide about all recorded messages again, under other settings.

    The relay's own policy runs over history, and every message for which it
    decides otherwise is counted. Without --settings every step is replayed and
    nothing differs; that is how you know that the answers can be trusted. With
    --settings, whatever the recorded numbers prove unchanged is not replayed.
    The answer is also left in the lake, for the dashboard to show.

    \b
    Examples:
      waypost pipeline backtest --lake ./lake
      waypost pipeline backtest --lake ./lake --settings tighter.json --out ./decisions
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.replay.backtest import backtest as replay
    from waypost.pipeline.replay.backtest import remember

    changes = _content(settings)
    with running(spark) as job, job.step("replaying"):
        # History as it was is asked for to see that the replay is right: then no step is spared.
        opened = open_lake(job.spark, lake)
        result = replay(opened, changes, out, shortcut=changes is not None)
        remember(opened, result)
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
            help="The share of wanted messages that may be refused.",
        ),
    ] = 0.001,
    json: JsonOption = False,
    spark: "SparkChoice",
) -> None:
    """Find the tightest limits that wanted traffic hardly notices.

    Wanted is what comes from senders that the recipient has written to, unless
    they stand out in the table 'anomalies'. Shows what each limit would have
    cost, and checks the chosen ones with a backtest.
    """
    from waypost.cli.rendering import console, pipeline
    from waypost.pipeline.lake.lake import open_lake
    from waypost.pipeline.replay.recommend import recommend as advise

    with running(spark) as job, job.step("weighing limits"):
        result = advise(open_lake(job.spark, lake), reject_at_most)
    if json:
        console.print_json(result)
    else:
        pipeline.show_recommendation(result)


def _content(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InvalidInput(f"--settings {path} cannot be read: {problem.strerror}") from None
