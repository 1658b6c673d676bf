"""What looking a directory over turned up, as text, and how far it has got."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import ROWS_MAX, console, plain, plural
from waypost.relay.verify.findings import Finding, Outcome, VerifyReport

_STYLE = {
    Outcome.FOUND: "yellow",
    Outcome.REPAIRED: "green",
    Outcome.LOST: "bold red",
    Outcome.NOTED: "dim",
}


@contextmanager
def segments_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while segments are read; nothing at all where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("reading the journal"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_report(report: VerifyReport) -> None:
    """What was read, each finding with its outcome, and the upshot."""
    out = console()
    out.print(Text(report.data_dir, style="bold"))
    out.print(
        f"read {plural(report.segments, 'segment')} with {plural(report.events, 'event')},"
        f" {plural(report.messages, 'message')} in mailboxes"
    )
    if report.in_use_by:
        out.print(f"in use by process {report.in_use_by}: what it has under way was left out")
    if report.findings:
        out.print()
        out.print(_table(report.findings))
    hidden = len(report.findings) - ROWS_MAX
    if hidden > 0:
        out.print(f"... and {hidden:,} more; --json lists all.", style="dim")
    if report.findings:
        out.print()
    out.print(upshot(report))


def upshot(report: VerifyReport) -> Text:
    """The whole report in a sentence."""
    found, repaired, lost = (
        sum(one.outcome is outcome for one in report.findings)
        for outcome in (Outcome.FOUND, Outcome.REPAIRED, Outcome.LOST)
    )
    said = [f"{plural(repaired, 'problem')} repaired"] if repaired else []
    if lost:
        said.append(f"{plural(lost, 'loss', 'losses')} that nothing can repair")
    if found:
        said.append(f"{plural(found, 'problem')} to repair with 'waypost verify --repair'")
    if not said:
        return Text("Everything is in order.", style="green")
    return Text(f"{', '.join(said)}.", style="green" if report.ok else "red")


def _table(findings: list[Finding]) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for one in findings[:ROWS_MAX]:
        what = Text.assemble((one.where, "cyan"), f": {plain(one.text)}")
        rows.add_row(Text(one.outcome, style=_STYLE[one.outcome]), one.part, what)
    return rows
