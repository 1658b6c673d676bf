"""Dead letters as text."""

from rich.padding import Padding
from rich.text import Text

from waypost.cli.rendering.console import ROWS_MAX, ago, console, plural, styled, table
from waypost.relay.delivery.dead_letters import DeadLetter, DeadLetterGroup


def show_dead_letters(letters: list[DeadLetter]) -> None:
    """One after the other, each with its reason below it; the newest failures last."""
    out = console()
    for letter in letters[-ROWS_MAX:]:
        line = Text.assemble(
            *((letter.envelope.id, "bold"), "  ", (letter.endpoint, "cyan"), "  from "),
            *(letter.envelope.sender, (f"  {ago(letter.failed_at)}", "dim")),
        )
        out.print(line)
        out.print(Padding(styled(letter.reason, "red"), (0, 0, 0, 2), expand=False))
    hidden = len(letters) - ROWS_MAX
    more = f", the newest {ROWS_MAX} shown; --json or --group tells of all" if hidden > 0 else ""
    out.print(f"{plural(len(letters), 'dead letter')}{more}.", style="dim" if letters else "")


def show_groups(groups: list[DeadLetterGroup]) -> None:
    """How many for each endpoint and reason, the most first."""
    out = console()
    if groups:
        rows = table("Count", "Endpoint", "Reason", "First", "Last", numbers=("Count",))
        for group in groups[:ROWS_MAX]:
            rows.add_row(
                f"{group.count:,}",
                Text(group.endpoint, style="cyan"),
                styled(group.reason, "red"),
                ago(group.first_failed_at),
                ago(group.last_failed_at),
            )
        out.print(rows)
    total = sum(group.count for group in groups)
    out.print(f"{plural(total, 'dead letter')} in {plural(len(groups), 'group')}.")
