"""How far a simulation has got, and what it came to."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import at, console, duration, plural, table
from waypost.simulate import ParallelSummary, Summary

if TYPE_CHECKING:
    from waypost.pipeline.jobs.synthesize import SynthesisSummary


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


def show_several(several: ParallelSummary) -> None:
    """What each of several relays was sent, and how long it took together."""
    out = console()
    rows = table("relay", "seed", "messages", "accepted", numbers=("seed", "messages", "accepted"))
    for one in several.relays:
        rows.add_row(one.data_dir, str(one.seed), f"{one.messages:,}", f"{one.accepted:,}")
    out.print(rows)
    out.print()
    out.print(
        f"{plural(several.messages, 'message')} in {duration(timedelta(seconds=several.seconds))}:"
        f" {several.messages_per_second:,.0f} messages/s. The journals are sealed."
    )


def show_repeated(summary: Summary, repeated: "SynthesisSummary", lake: str) -> None:
    """What was added to a lake, and what it was made of."""
    out = console()
    out.print(Text(lake, style="bold"))
    days = plural(len(repeated.days), "day")
    out.print(
        f"{plural(repeated.events, 'event')} of {plural(repeated.relays, 'relay')} on {days} added"
    )
    out.print(
        f"Each relay is one of {plural(summary.messages, 'message')} and"
        f" {plural(repeated.block, 'event')}, simulated in {duration(summary.elapsed)}:"
        f" {summary.messages_per_second:,.0f} messages/s."
    )


def _outcomes(summary: Summary) -> Table:
    rows = table("outcome", "count", numbers=("count",))
    rows.add_row("accepted", f"{summary.accepted:,}")
    for reason, count in sorted(summary.rejected.items(), key=lambda item: -item[1]):
        rows.add_row(Text.assemble("rejected ", (reason, "yellow")), f"{count:,}")
    for kind, count in sorted(summary.events.items(), key=lambda item: -item[1]):
        rows.add_row(kind, f"{count:,}")
    return rows
