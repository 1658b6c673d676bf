"""What is to be said about a `config.json`, as text."""

from rich.text import Text

from waypost.cli.facts import ConfigCheck
from waypost.cli.rendering.console import console, plain


def show_saved(check: ConfigCheck) -> None:
    """That it is the relay's own now, or why it is not."""
    if not check.valid:
        show_check(check)
        return
    out = console()
    out.print(f"{check.file} is the relay's config.json now.")
    show_notes(check)


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
    show_notes(check)


def show_notes(check: ConfigCheck) -> None:
    """What in it cannot work as meant."""
    for one in check.notes:
        console().print(Text.assemble(("note: ", "yellow"), one))
