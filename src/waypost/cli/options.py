"""Options that many verbs share: which relay, and as whom.

Rule 1  A URL means a served relay, a data directory means the files. An option beats the
        environment; two that stand on the same level contradict each other, and that is said.
Rule 2  A verb takes one `Where` and does not know which options it was made of.
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.cli.backend import Target
    from waypost.cli.local import Directory
    from waypost.cli.remote.relay import Served

DEFAULT_DATA_DIR = Path("waypost-data")
DEFAULT_URL = "http://127.0.0.1:7171"
_PANEL = "Which relay, and as whom"

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="WAYPOST_DATA_DIR",
        help="The relay's data directory.",
        show_default=str(DEFAULT_DATA_DIR),
        rich_help_panel=_PANEL,
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="WAYPOST_URL",
        help="A relay that is served, instead of a directory.",
        rich_help_panel=_PANEL,
    ),
]
ServedUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="WAYPOST_URL",
        help="Where the relay is served.",
        show_default=DEFAULT_URL,
        rich_help_panel=_PANEL,
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="WAYPOST_KEY",
        help="The keys of the agent you are, made by 'waypost keys new'.",
        rich_help_panel=_PANEL,
    ),
]
OperatorOption = Annotated[
    Path | None,
    typer.Option(
        "--operator-token-file",
        metavar="FILE",
        envvar="WAYPOST_OPERATOR_TOKEN_FILE",
        help="The operator's token: the file operator-token in the relay's data directory.",
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")
]


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which relay, and as whom. With a `url` it is a served one.

    `closing` lets go of connections when the verb is done.
    """

    data_dir: Path = DEFAULT_DATA_DIR
    url: str | None = None
    key: Path | None = None
    operator_token_file: Path | None = None
    closing: ExitStack = field(default_factory=ExitStack)

    def target(self) -> "Target":
        """The relay. Loads its code: to be called inside a verb."""
        return self.directory() if self.url is None else self.served()

    def directory(self) -> "Directory":
        """The relay in the data directory."""
        from waypost.cli.local import Directory

        return Directory(self.data_dir)

    def served(self) -> "Served":
        """The relay behind the URL, the usual one if none is given."""
        from waypost.cli.remote.relay import Served

        served = Served(self)
        self.closing.callback(served.close)
        return served


Verb = Callable[..., None]


def on_a_relay(verb: Verb) -> Verb:
    """A verb whose `where` may be a directory or a URL."""
    return _taking(
        verb,
        _from_either,
        data_dir=DataDirOption,
        url=UrlOption,
        key=KeyOption,
        operator_token_file=OperatorOption,
    )


def on_a_directory(verb: Verb) -> Verb:
    """A verb that works on files: a URL is understood, and turned down in so many words."""
    return _taking(verb, _from_directory, data_dir=DataDirOption, url=UrlOption)


def as_an_agent(verb: Verb) -> Verb:
    """A verb that connects to a served relay as an agent."""
    return _taking(verb, _from_url, url=ServedUrlOption, key=KeyOption)


def _from_either(ctx: typer.Context, given: dict[str, Any]) -> Where:
    if "data_dir" in given and "url" in given:
        sources = {name: _is_typed(ctx, name) for name in ("data_dir", "url")}
        if sources["data_dir"] == sources["url"]:
            raise InvalidInput(
                f"--data-dir and --url are both given ({given['data_dir']} and {given['url']}):"
                " a directory or a served relay, not both (WAYPOST_DATA_DIR and WAYPOST_URL count"
                " as given)"
            )
        del given["url" if sources["data_dir"] else "data_dir"]
    return Where(**given)


def _from_directory(ctx: typer.Context, given: dict[str, Any]) -> Where:
    url = given.pop("url", None)
    if url is not None and (_is_typed(ctx, "url") or "data_dir" not in given):
        raise InvalidInput(
            f"'waypost {ctx.info_name}' works on files, on the machine where they are:"
            f" give --data-dir DIR, not a URL ({url})"
        )
    return Where(**given)


def _from_url(_: typer.Context, given: dict[str, Any]) -> Where:
    return Where(**given)


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _taking(
    verb: Verb, make: Callable[[typer.Context, dict[str, Any]], Where], **options: Any
) -> Verb:
    """`verb` with `options` in the place of its parameter `where`."""

    @wraps(verb)
    def run(ctx: typer.Context, **given: Any) -> None:
        taken = {name: given.pop(name) for name in options}
        where = make(ctx, {name: value for name, value in taken.items() if value is not None})
        with where.closing:
            verb(where, **given)

    shown = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    own = [one for name, one in inspect.signature(verb).parameters.items() if name != "where"]
    shown += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    shown += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]
    setattr(run, "__signature__", inspect.Signature(shown))  # noqa: B010 - mypy knows no such name
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run
