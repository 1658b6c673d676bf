"""Options and arguments shared by commands: which relay, which identity, payloads, durations.

Rule 1  A URL selects a served relay, a data directory selects local files. An option takes
        precedence over the environment, and that over the context in use; two given on the same
        level are an error.
Rule 2  A command takes one `RelayChoice` and does not know from which options it was built.
Rule 3  Invalid input is a usage error: exit code 2.
"""

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from waypost.cli.contexts import context_in_use
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.policy.guard import MessagingGuardConfig

DEFAULT_DATA_DIR = Path("waypost-data")
DEFAULT_URL = "http://127.0.0.1:7171"
_PANEL = "Relay and identity"
_DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="WAYPOST_DATA_DIR",
        help="Data directory of the relay.",
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
        help="URL of a served relay, instead of --data-dir.",
        rich_help_panel=_PANEL,
    ),
]
HiddenUrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", envvar="WAYPOST_URL", hidden=True)
]
ServedUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="WAYPOST_URL",
        help="URL of the served relay.",
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
        help="Key file of the agent to act as, created by 'waypost keys new'.",
        rich_help_panel=_PANEL,
    ),
]
OperatorOption = Annotated[
    Path | None,
    typer.Option(
        "--operator-token-file",
        metavar="FILE",
        envvar="WAYPOST_OPERATOR_TOKEN_FILE",
        help="Operator token: the file operator-token in the relay's data directory.",
        rich_help_panel=_PANEL,
    ),
]
PlainHttpOption = Annotated[
    bool,
    typer.Option(
        "--allow-plain-http",
        help="Send the operator's token without TLS to another machine.",
        rich_help_panel=_PANEL,
    ),
]
NewAddressOption = Annotated[
    bool,
    typer.Option(
        "--new-address",
        help="Send the operator's token to an address that it was not used at before.",
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


@dataclass(frozen=True, kw_only=True)
class RelayChoice:
    """The relay of a command, and the identity to use there. With a `url` it is a served relay.

    `closing` closes connections after the command.
    """

    data_dir: Path = DEFAULT_DATA_DIR
    url: str | None = None
    key: Path | None = None
    operator_token_file: Path | None = None
    allow_plain_http: bool = False
    new_address: bool = False
    closing: ExitStack = field(default_factory=ExitStack)

    def words(self) -> list[str]:
        """Return the options that choose the same relay in another command."""
        if self.url is None:
            is_default = self.data_dir == DEFAULT_DATA_DIR
            return [] if is_default else ["--data-dir", str(self.data_dir)]
        token = self.operator_token_file
        options = ["--url", self.url]
        return options if token is None else [*options, "--operator-token-file", str(token)]


Command = Callable[..., None]


def with_relay_options(command: Command) -> Command:
    """Give a command options for a data directory or a URL, as its parameter `choice`."""
    return _with_options(
        command,
        _choose_any,
        data_dir=DataDirOption,
        url=UrlOption,
        key=KeyOption,
        operator_token_file=OperatorOption,
        allow_plain_http=PlainHttpOption,
        new_address=NewAddressOption,
    )


def with_data_dir_options(command: Command) -> Command:
    """Give a command options for a data directory; a URL is rejected with an explanation."""
    return _with_options(command, _choose_local, data_dir=DataDirOption, url=HiddenUrlOption)


def with_agent_options(command: Command) -> Command:
    """Give a command options to connect to a served relay as an agent."""
    return _with_options(command, _choose_remote, url=ServedUrlOption, key=KeyOption)


def require_modules(purpose: str, modules: Iterable[str], extra: str) -> None:
    """Exit with 1 and a hint unless all `modules` are installed; `extra` provides them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        typer.echo(
            f"waypost: {purpose} needs {', '.join(missing)}, which is not installed:"
            f" pip install 'waypost[{extra}]'",
            err=True,
        )
        raise typer.Exit(1)


def guard_limits() -> "MessagingGuardConfig":
    """Return the limits of requests from the variables AGENT_*; note invalid values on stderr."""
    from waypost.policy.guard import invalid_guard_variables, load_messaging_guard_config

    for problem in invalid_guard_variables(os.environ):
        typer.echo(f"waypost: {problem}", err=True)
    return load_messaging_guard_config(os.environ)


def read_payload(argument: str, *, is_text: bool = False) -> object:
    """Return the payload of an argument: JSON, `-` for stdin, `@FILE` for a file, or other text.

    JSON is passed on unchanged. Text that is not JSON becomes a JSON string, and with `is_text`
    any text; from stdin or a file it loses one trailing line break. Text that begins like a JSON
    object, list or string and is none is more likely a mistake: that is a usage error.
    """
    import msgspec

    text = _read_text(argument)
    try:
        if not is_text:
            msgspec.json.decode(text)
            return msgspec.Raw(text.encode())
    except msgspec.DecodeError as problem:
        if text.lstrip().startswith(("{", "[", '"')):
            raise typer.BadParameter(
                f"the payload begins like JSON, but is not ({problem}): correct it, or send it as"
                " text with --text"
            ) from None
    except RecursionError:
        raise typer.BadParameter("the payload is nested too deeply") from None
    literal = argument != "-" and not argument.startswith("@")
    return text if literal else text.removesuffix("\n").removesuffix("\r")


def parse_duration(text: str) -> timedelta:
    """Parse `45s`, `30m`, `12h`, `7d`, `2w`, or several combined: `1d12h`."""
    parts = re.findall(r"(\d+)([smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise typer.BadParameter(f"{text!r} is not a duration: write 45s, 30m, 12h, 7d or 2w")
    try:
        return sum((timedelta(**{_DURATION_UNITS[unit]: int(n)}) for n, unit in parts), timedelta())
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long a duration") from None


def parse_instant(text: str) -> datetime:
    """Parse an instant in ISO 8601, such as `2026-05-01T09:00`; local time without a time zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not an instant: write 2026-05-01T09:00, or 2026-05-01T09:00+02:00"
        ) from None


def _read_text(argument: str) -> str:
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode()
        if argument.startswith("@"):
            return Path(argument[1:]).read_bytes().decode()
    except OSError as problem:
        raise typer.BadParameter(f"cannot read {argument[1:]}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter("the payload is not UTF-8 text: encode it as base64") from None
    return argument


def _choose_any(ctx: typer.Context, given: dict[str, Any]) -> RelayChoice:
    if "data_dir" not in given:
        given = _with_context(given)
    if "data_dir" in given and "url" in given:
        on_command_line = {name: _is_on_command_line(ctx, name) for name in ("data_dir", "url")}
        if on_command_line["data_dir"] == on_command_line["url"]:
            raise InvalidInput(
                f"--data-dir and --url are both given ({given['data_dir']} and {given['url']}):"
                " give one of them (WAYPOST_DATA_DIR and WAYPOST_URL count as given)"
            )
        del given["url" if on_command_line["data_dir"] else "data_dir"]
    return RelayChoice(**given)


def _choose_local(ctx: typer.Context, given: dict[str, Any]) -> RelayChoice:
    url = given.pop("url", None)
    if url is not None and (_is_on_command_line(ctx, "url") or "data_dir" not in given):
        raise InvalidInput(
            f"'waypost {ctx.info_name}' works on local files, not on a URL ({url}):"
            " run it on the relay's machine with --data-dir DIR"
        )
    return RelayChoice(**given)


def _choose_remote(_: typer.Context, given: dict[str, Any]) -> RelayChoice:
    return RelayChoice(**_with_context(given))


def _with_context(given: dict[str, Any]) -> dict[str, Any]:
    """Add the relay and the credentials of the context in use, unless a URL is given."""
    used = None if "url" in given else context_in_use()
    if used is None:
        return given
    files = {"key": used.key, "operator_token_file": used.operator_token_file}
    named = {name: Path(file) for name, file in files.items() if file is not None}
    return {"url": used.url, **named, **given}


def _default(option: Any) -> bool | None:
    return False if get_args(option)[0] is bool else None


def _is_on_command_line(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _with_options(
    command: Command,
    choose: Callable[[typer.Context, dict[str, Any]], RelayChoice],
    **options: Any,
) -> Command:
    """Replace the parameter `choice` of `command` with `options`."""

    @wraps(command)
    def run(ctx: typer.Context, **given: Any) -> None:
        values = {name: given.pop(name) for name in options}
        choice = choose(ctx, {name: value for name, value in values.items() if value is not None})
        with choice.closing:
            command(choice, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command).parameters
    parameters = [
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
        *(one.replace(kind=keyword) for name, one in own.items() if name != "choice"),
        *(
            inspect.Parameter(name, keyword, default=_default(option), annotation=option)
            for name, option in options.items()
        ),
    ]
    setattr(run, "__signature__", inspect.Signature(parameters))  # noqa: B010 - unknown to mypy
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
