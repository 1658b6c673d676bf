"""Options that the jobs of the pipeline share: where Spark runs, which journals, which lake."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.requirements import require
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice

_PANEL = "Where Spark runs"
_NEEDED = ("pyspark", "pyarrow", "numpy", "pandas")

JournalOption = Annotated[
    list[str],
    typer.Option(
        "--journal",
        metavar="[NAME=]DIR",
        help=(
            "The data directory of a relay, and what to call it in the lake. May be given"
            " several times."
        ),
    ),
]
LakeOption = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="WAYPOST_LAKE",
        help="Where the tables lie: a directory, or any address that Spark can write to.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="A Spark master.",
        show_default="local[*]: this machine, all cores",
        rich_help_panel=_PANEL,
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, as in sc://host:15002.",
        rich_help_panel=_PANEL,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark. May be given several times.",
        rich_help_panel=_PANEL,
    ),
]
SparkLogOption = Annotated[
    bool,
    typer.Option("--spark-log", help="Show Spark's own log.", rich_help_panel=_PANEL),
]


def on_spark(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of `SparkChoice`, and hand it the choice as `spark`."""

    @wraps(verb)
    def command(
        *,
        master: str | None,
        remote: str | None,
        conf: list[str] | None,
        spark_log: bool,
        **rest: Any,
    ) -> None:
        require("the pipeline", _NEEDED, "spark")
        verb(spark=_choice(master, remote, conf or [], spark_log), **rest)

    added = {
        "master": (MasterOption, None),
        "remote": (RemoteOption, None),
        "conf": (ConfOption, None),
        "spark_log": (SparkLogOption, False),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(verb)
    own = [one for one in signature.parameters.values() if one.name != "spark"]
    more = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in added.items()
    ]
    shown = signature.replace(parameters=[*own, *more])
    command.__signature__ = shown  # type: ignore[attr-defined]
    command.__annotations__ = {
        **{one.name: one.annotation for one in own},
        **{name: annotation for name, (annotation, _) in added.items()},
    }
    return command


def _choice(
    master: str | None, remote: str | None, conf: list[str], spark_log: bool
) -> "SparkChoice":
    from waypost.pipeline.spark.session import LOCAL, SparkChoice

    if master and remote:
        raise InvalidInput("--master and --remote exclude each other: a session has one place")
    if remote and not remote.startswith("sc://"):
        raise InvalidInput(f"--remote {remote} is not an address of Spark Connect: sc://HOST:15002")
    settings: dict[str, str] = {}
    for one in conf:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidInput(f"--conf {one} is not of the form spark.KEY=VALUE")
        settings[name] = value
    return SparkChoice(master=master or LOCAL, remote=remote, conf=settings, verbose=spark_log)
