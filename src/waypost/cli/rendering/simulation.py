"""How far a simulation has got, and what it came to."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import at, console, duration, plural, table
from waypost.simulate import Summary


@contextmanager
def messages_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while messages are sent; nothing at all where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (
        *(TextColumn("simulating"), BarColumn()),
        *(MofNCompleteColumn(), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_summary(summary: Summary) -> None:
    """What was sent, what became of it, and how long it took."""
    out = console()
    out.print(Text(summary.data_dir, style="bold"))
    out.print(
        f"{plural(summary.messages, 'message')} by {plural(summary.agents, 'agent')}"
        f" ({summary.scenario}, seed {summary.seed})"
    )
    out.print(f"{at(summary.begin)} to {at(summary.end)}, on a clock of their own")
    out.print()
    out.print(_outcomes(summary))
    out.print()
    out.print(
        f"{plural(summary.pending, 'message')} still waiting,"
        f" {plural(summary.dead, 'dead letter')}. The journal is sealed."
    )
    out.print(
        f"It took {duration(summary.elapsed)}: {summary.messages_per_second:,.0f} messages/s."
    )


def _outcomes(summary: Summary) -> Table:
    rows = table("outcome", "count", numbers=("count",))
    rows.add_row("accepted", f"{summary.accepted:,}")
    for reason, count in sorted(summary.rejected.items(), key=lambda item: -item[1]):
        rows.add_row(Text.assemble("rejected ", (reason, "yellow")), f"{count:,}")
    for kind, count in sorted(summary.events.items(), key=lambda item: -item[1]):
        rows.add_row(kind, f"{count:,}")
    return rows
