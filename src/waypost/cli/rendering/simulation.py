"""Progress and summaries of simulations as text."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import at, console, duration, note, plural, table
from waypost.simulate import ParallelSummary, Summary

if TYPE_CHECKING:
    from waypost.pipeline.jobs.synthesize import SynthesisSummary


@contextmanager
def messages_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr while messages are sent, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_summary(summary: Summary) -> None:
    """Print the number of messages, their outcomes, and the duration."""
    out = console()
    out.print(Text(summary.data_dir, style="bold"))
    out.print(
        f"{plural(summary.messages, 'message')} by {plural(summary.agents, 'agent')}"
        f" ({summary.scenario}, seed {summary.seed})"
    )
    out.print(f"{at(summary.begin)} to {at(summary.end)} of virtual time")
    out.print()
    out.print(_outcomes(summary))
    out.print()
    out.print(
        f"{plural(summary.pending, 'message')} still pending,"
        f" {plural(summary.dead, 'dead letter')}. The journal is sealed."
    )
    out.print(
        f"Simulated in {duration(summary.elapsed)}: {summary.messages_per_second:,.0f} messages/s."
    )


def show_parallel(summary: ParallelSummary) -> None:
    """Print the messages of each relay, and the total duration."""
    out = console()
    rows = table("relay", "seed", "messages", "stored", numbers=("seed", "messages", "stored"))
    for one in summary.relays:
        rows.add_row(one.data_dir, str(one.seed), f"{one.messages:,}", f"{one.accepted:,}")
    out.print(rows)
    out.print()
    out.print(
        f"{plural(summary.messages, 'message')} in {duration(timedelta(seconds=summary.seconds))}:"
        f" {summary.messages_per_second:,.0f} messages/s. The journals are sealed."
    )


def show_synthesized(summary: Summary, added: "SynthesisSummary", lake: str) -> None:
    """Print the events added to a lake, and the simulation they were repeated from."""
    out = console()
    out.print(Text(lake, style="bold"))
    days = plural(len(added.days), "day")
    out.print(
        f"Added {plural(added.events, 'event')} of {plural(added.relays, 'relay')} on {days}."
    )
    out.print(
        f"Each relay has {plural(summary.messages, 'message')} and"
        f" {plural(added.block, 'event')}, simulated in {duration(summary.elapsed)}:"
        f" {summary.messages_per_second:,.0f} messages/s."
    )
    for text in added.notes:
        note(text)


def _outcomes(summary: Summary) -> Table:
    rows = table("outcome", "count", numbers=("count",))
    rows.add_row("stored", f"{summary.accepted:,}")
    for reason, count in sorted(summary.rejected.items(), key=lambda item: -item[1]):
        rows.add_row(Text.assemble("rejected ", (reason, "yellow")), f"{count:,}")
    for kind, count in sorted(summary.events.items(), key=lambda item: -item[1]):
        rows.add_row(kind, f"{count:,}")
    return rows
