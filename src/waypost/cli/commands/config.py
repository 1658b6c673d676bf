"""`config`: the settings in `config.json`."""

from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, directory

verbs = typer.Typer(help="Check and show the settings of a relay.", no_args_is_help=True)


@verbs.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="A config.json; by default the one in the data directory."),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Say whether a relay would take a config.json.

    Names the first value that is wrong, and combinations that are valid but
    cannot work as meant. Exits with 1 if the file is invalid.

    \b
    Examples:
      waypost config check
      waypost config check new-config.json
    """
    from waypost.cli.overview import check_config
    from waypost.cli.rendering import console, settings
    from waypost.relay.data_dir import DataDir

    if file is not None and not file.exists():
        raise typer.BadParameter(f"{file} does not exist")
    found = check_config(file if file is not None else DataDir(data_dir).config)
    if json:
        console.print_json(found)
    else:
        settings.show_check(found)
    if not found.valid:
        raise typer.Exit(1)


@verbs.command()
def show(data_dir: DataDirOption = DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Print the settings a relay would start with, as a config.json.

    Defaults, overridden by the directory's config.json. The output can be saved
    as one. Exits with 1 if the directory's own file is invalid, and so ignored.

    \b
    Example:
      waypost config show > config.json
    """
    from waypost.cli.overview import effective_settings
    from waypost.cli.rendering import console

    target = directory(data_dir)
    target.require()
    document, problem = effective_settings(target.data)
    console.print_json(document)
    if problem:
        console.note(problem)
        raise typer.Exit(1)
