"""Options shared by pipeline commands: journals, lake, and where Spark runs."""

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.options import require_modules
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
        help="Data directory of a relay, and its name in the lake. May be repeated.",
    ),
]
LakeOption = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="WAYPOST_LAKE",
        help="Directory of the tables, or any URL that Spark can write to.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master.",
        show_default="local[*]: this machine, all cores",
        rich_help_panel=_PANEL,
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="Spark Connect server, for example sc://host:15002.",
        rich_help_panel=_PANEL,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="Spark setting. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]
NoServerOption = Annotated[
    bool,
    typer.Option(
        "--no-server",
        help="Start Spark here, even if 'waypost pipeline serve' runs.",
        rich_help_panel=_PANEL,
    ),
]
SparkLogOption = Annotated[
    bool,
    typer.Option("--spark-log", help="Show Spark's own log.", rich_help_panel=_PANEL),
]


def require_pipeline() -> None:
    """Exit with an explanation if the packages of the pipeline are missing."""
    require_modules("the pipeline", _NEEDED, "spark")


def with_spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `SparkChoice`, passed to it as `spark`."""

    @wraps(command)
    def run(
        *,
        master: str | None,
        remote: str | None,
        conf: list[str] | None,
        spark_log: bool,
        no_server: bool,
        **rest: Any,
    ) -> None:
        require_pipeline()
        from msgspec.structs import replace

        from waypost.pipeline.journal.sources import parse_sources, require_local

        choice = _choice(master, remote, conf or [], spark_log)
        # A server has settings, a master and a log of its own.
        has_wishes = no_server or master or remote or conf or spark_log
        choice = replace(choice, events=_expected_events(rest), share_server=not has_wishes)
        if choice.in_this_process and not _has_other_file_system(choice):
            require_local(parse_sources(rest.get("journal", [])))
        command(spark=choice, **rest)
        if choice.in_this_process:
            _archive_classes(choice)

    added = {
        "master": (MasterOption, None),
        "remote": (RemoteOption, None),
        "conf": (ConfOption, None),
        "spark_log": (SparkLogOption, False),
        "no_server": (NoServerOption, False),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.name != "spark"]
    more = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in added.items()
    ]
    run.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {
        **{one.name: one.annotation for one in own},
        **{name: annotation for name, (annotation, _) in added.items()},
    }
    return run


def _has_other_file_system(choice: "SparkChoice") -> bool:
    """Return whether a path without a scheme may be elsewhere to Spark, which then looks itself."""
    return "spark.hadoop.fs.defaultFS" in choice.conf or any(
        name in os.environ for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR")
    )


def _archive_classes(choice: "SparkChoice") -> None:
    """After a first job, prepare Java in the background, so that the next ones start sooner."""
    from waypost.cli.rendering.console import note
    from waypost.pipeline.spark.class_archive import is_archive_missing, start_archiving

    if is_archive_missing(choice.conf, os.environ):
        start_archiving()
        note("preparing Java in the background, so that the next job starts sooner")


def _expected_events(arguments: Mapping[str, Any]) -> int | None:
    """Return about how many events a command with these arguments reads; None if unknown."""
    from waypost.pipeline.journal.volume import estimate_events

    found = estimate_events(arguments.get("journal", ()), arguments["lake"], arguments.get("file"))
    return None if found is None else max(found, arguments.get("events", 0))


def _choice(
    master: str | None, remote: str | None, conf: list[str], spark_log: bool
) -> "SparkChoice":
    from waypost.pipeline.spark.session import LOCAL, SparkChoice

    if master and remote:
        raise InvalidInput("--master and --remote exclude each other: give one of them")
    if remote and not remote.startswith("sc://"):
        raise InvalidInput(f"--remote {remote} is not a Spark Connect URL: write sc://HOST:15002")
    settings: dict[str, str] = {}
    for one in conf:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidInput(f"--conf {one} is not a Spark setting: write spark.KEY=VALUE")
        settings[name] = value
    return SparkChoice(master=master or LOCAL, remote=remote, conf=settings, verbose=spark_log)
