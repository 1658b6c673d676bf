"""What is to be said about a `config.json`, as text."""

from rich.text import Text

from waypost.cli.facts import ConfigCheck
from waypost.cli.rendering.console import console, plain


def show_check(check: ConfigCheck) -> None:
    """Whether the file can be used, and what in it cannot work as meant."""
    out = console()
    if not check.exists:
        out.print(f"{check.file} does not exist: the defaults hold.")
    elif check.valid:
        out.print(Text.assemble(f"{check.file} is ", ("valid", "green"), "."))
    else:
        out.print(Text.assemble(f"{check.file} is ", ("invalid", "bold red"), ":"))
        out.print(f"  {plain(check.problem)}")
        out.print("A relay ignores it whole and keeps its last good settings.")
    for one in check.notes:
        out.print(Text.assemble(("note: ", "yellow"), one))
