"""`config`: the settings in `config.json`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import JsonOption, Where, on_a_relay

if TYPE_CHECKING:
    from waypost.cli.facts import ConfigCheck

verbs = typer.Typer(help="Check, save and show the settings of a relay.", no_args_is_help=True)


@verbs.command()
@on_a_relay
def check(
    where: Where,
    file: Annotated[
        Path | None,
        typer.Argument(help="A config.json; by default the relay's own."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say whether a relay would take a config.json.

    Names the first value that is wrong, and combinations that are valid but
    cannot work as meant. Exits with 1 if the file is invalid. A served relay
    judges the file by itself; nothing is changed.

    \b
    Examples:
      waypost config check
      waypost config check new-config.json
    """
    from waypost.cli.rendering.settings import show_check

    if file is not None and not file.exists():
        raise typer.BadParameter(f"{file} does not exist")
    _conclude(where.target().check_config(file), show_check, json)


@verbs.command()
@on_a_relay
def save(
    where: Where,
    file: Annotated[Path, typer.Argument(help="What is to become the relay's config.json.")],
    json: JsonOption = False,
) -> None:
    """Make a file the relay's config.json, if it is valid.

    A relay that runs takes it over at once, except for what needs a start. With
    one bad value nothing is changed, and the exit code is 1.

    \b
    Example:
      waypost config save new-config.json
    """
    from waypost.cli.rendering.settings import show_saved

    if not file.exists():
        raise typer.BadParameter(f"{file} does not exist")
    _conclude(where.target().save_config(file), show_saved, json)


@verbs.command()
@on_a_relay
def show(where: Where, json: JsonOption = False) -> None:
    """Print the settings a relay would start with, as a config.json.

    Defaults, overridden by the directory's config.json. The output can be saved
    as one. Exits with 1 if the directory's own file is invalid, and so ignored.
    A served relay tells the settings that are in force.

    \b
    Example:
      waypost config show > config.json
    """
    from waypost.cli.rendering import console

    document, problem = where.target().config()
    console.print_json(document)
    if problem:
        console.note(problem)
        raise typer.Exit(1)


def _conclude(found: "ConfigCheck", show: "Callable[[ConfigCheck], None]", json: bool) -> None:
    """Print it, and exit with 1 if the file is invalid."""
    from waypost.cli.rendering import console

    if json:
        console.print_json(found)
    else:
        show(found)
    if not found.valid:
        raise typer.Exit(1)
