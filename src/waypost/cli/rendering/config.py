"""Checks of `config.json`, and access rules, as text."""

from rich.text import Text

from waypost.cli.rendering.console import console, plain, plural, table
from waypost.cli.results import ConfigCheck
from waypost.wire.http_bodies import RuleList


def show_check(check: ConfigCheck) -> None:
    """Print whether the file is valid, and notes about settings that cannot work as intended."""
    out = console()
    if not check.exists:
        out.print(f"{check.file} does not exist: the defaults apply.")
    elif check.valid:
        out.print(Text.assemble(f"{check.file} is ", ("valid", "green"), "."))
    else:
        out.print(Text.assemble(f"{check.file} is ", ("invalid", "bold red"), ":"))
        out.print(f"  {plain(check.problem)}")
        out.print("A relay ignores the whole file and keeps its last valid settings.")
    _show_notes(check)


def show_saved(check: ConfigCheck) -> None:
    """Print that the file was saved, or why not."""
    if not check.valid:
        show_check(check)
        return
    console().print(f"Saved {check.file} as the relay's config.json.")
    _show_notes(check)


def show_rules(found: RuleList) -> None:
    """Print the rules in the order in which they are applied."""
    out = console()
    if found.rules:
        rows = table("Action", "From", "To", "Priority", numbers=("Priority",))
        for rule in found.rules:
            rows.add_row(
                Text(rule.action, style="red" if rule.action == "deny" else "green"),
                Text(rule.from_, style="cyan"),
                Text(rule.to, style="cyan"),
                f"{rule.priority:,}",
            )
        out.print(rows)
    out.print(f"{plural(len(found.rules), 'rule')}; messages that match none are allowed.")


def _show_notes(check: ConfigCheck) -> None:
    for one in check.notes:
        console().print(Text.assemble(("note: ", "yellow"), one))
