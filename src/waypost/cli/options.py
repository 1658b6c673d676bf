"""Options that many verbs share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from waypost.cli.directory import Directory

DEFAULT_DATA_DIR = Path("waypost-data")

DataDirOption = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="WAYPOST_DATA_DIR",
        help="The relay's data directory.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")
]


def directory(data_dir: Path) -> "Directory":
    """The relay in a data directory. Loads the relay's code: to be called inside a verb."""
    from waypost.cli.directory import Directory

    return Directory(data_dir)
