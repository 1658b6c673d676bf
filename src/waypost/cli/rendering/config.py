"""Checks of `config.json`, access rules and names, as text."""

from msgspec import UNSET
from rich.text import Text

from waypost.cli.rendering.console import ROWS_MAX, ago, console, plural, styled, table
from waypost.cli.results import ConfigCheck
from waypost.wire.http_bodies import RuleList
from waypost.wire.name_bodies import NameInfo
from waypost.wire.printable import printable


def show_check(check: ConfigCheck) -> None:
    """Print whether the file is valid, and notes about settings that cannot work as intended."""
    out = console()
    if not check.exists:
        out.print(f"{check.file} does not exist: the defaults apply.")
    elif check.valid:
        out.print(Text.assemble(f"{check.file} is ", ("valid", "green"), "."))
    else:
        out.print(Text.assemble(f"{check.file} is ", ("invalid", "bold red"), ":"))
        out.print(f"  {printable(check.problem)}")
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
        keys = ("From key",) if any(rule.from_key is not UNSET for rule in found.rules) else ()
        rows = table("Action", "From", "To", "Priority", *keys, numbers=("Priority",))
        for rule in found.rules:
            key = "" if rule.from_key is UNSET else printable(rule.from_key)
            rows.add_row(
                Text(rule.action, style="red" if rule.action == "deny" else "green"),
                styled(rule.from_, "cyan"),
                styled(rule.to, "cyan"),
                f"{rule.priority:,}",
                *(key for _ in keys),
            )
        out.print(rows)
    out.print(f"{plural(len(found.rules), 'rule')}; messages that match none are allowed.")


def show_names(found: list[NameInfo]) -> None:
    """Print the names and their keys."""
    out = console()
    if found:
        rows = table("Name", "Public key", "Bound", "By", "Use")
        for one in found[:ROWS_MAX]:
            use = "unused" if one.unused else ""
            rows.add_row(
                styled(one.subject, "cyan"),
                printable(one.public_key),
                ago(one.bound_at),
                "operator" if one.by_operator else "first use",
                "connected" if one.connected else use,
            )
        out.print(rows)
    if len(found) > ROWS_MAX:
        out.print(f"{len(found) - ROWS_MAX:,} more; --json prints all of them.")
    out.print(f"{plural(len(found), 'name')}.")


def _show_notes(check: ConfigCheck) -> None:
    for one in check.notes:
        console().print(Text.assemble(("note: ", "yellow"), printable(one)))
