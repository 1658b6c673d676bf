"""Access rules as text."""

from rich.text import Text

from waypost.cli.rendering.console import console, plural, table
from waypost.wire.http_bodies import RuleList


def show_rules(found: RuleList) -> None:
    """In the order in which they are tried."""
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
    out.print(f"{plural(len(found.rules), 'rule')}; what none of them is about is allowed.")
