"""`config`: check, save and show the settings in `config.json`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

if TYPE_CHECKING:
    from waypost.cli.results import ConfigCheck

commands = CommandGroup(help="Check, save and show the settings of a relay.")


@commands.command()
@with_relay_options
def check(
    choice: RelayChoice,
    file: Annotated[
        Path | None,
        typer.Argument(help="A config.json; by default the relay's own."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check whether a relay would accept a config.json.

    Reports the first invalid value, and valid combinations that cannot work as
    intended. Exits with 1 if the file is invalid. With --url the served relay
    checks the file; nothing is changed.

    \b
    Examples:
      waypost config check
      waypost config check new-config.json
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering.config import show_check

    _require_file(file)
    _print_check(open_backend(choice).check_config(file), show_check, json)


@commands.command()
@with_relay_options
def save(
    choice: RelayChoice,
    file: Annotated[Path, typer.Argument(help="The new config.json.")],
    json: JsonOption = False,
) -> None:
    """Make a file the relay's config.json, if it is valid.

    A running relay applies it at once, except for settings that need a restart.
    With one invalid value nothing is changed, and the exit code is 1.

    \b
    Example:
      waypost config save new-config.json
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering.config import show_saved

    _require_file(file)
    _print_check(open_backend(choice).save_config(file), show_saved, json)


@commands.command()
@with_relay_options
def show(choice: RelayChoice, json: JsonOption = False) -> None:
    """Print the effective settings of a relay as a config.json.

    These are the defaults, overridden by the directory's config.json; with --url,
    the settings in force. The output can be saved as a config.json. Exits with 1
    if the directory's own file is invalid, and therefore ignored.

    \b
    Example:
      waypost config show > config.json
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console

    document, problem = open_backend(choice).config()
    console.print_json(document)
    if problem:
        console.note(problem)
        raise typer.Exit(1)


def _require_file(file: Path | None) -> None:
    if file is not None and not file.exists():
        raise typer.BadParameter(f"{file} does not exist")


def _print_check(found: "ConfigCheck", show: "Callable[[ConfigCheck], None]", json: bool) -> None:
    """Print the check, and exit with 1 if the file is invalid."""
    from waypost.cli.rendering import console

    if json:
        console.print_json(found)
    else:
        show(found)
    if not found.valid:
        raise typer.Exit(1)
