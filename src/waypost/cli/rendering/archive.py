"""Reports on archived journals as text."""

from rich.text import Text

from waypost.cli.rendering.console import ROWS_MAX, at, console, plural, styled
from waypost.relay.verify.archive import ArchiveReport
from waypost.wire.envelopes import instant
from waypost.wire.printable import printable


def show_archive(report: ArchiveReport) -> None:
    """Print what was read, what the signatures confirm, and what is wrong."""
    out = console()
    out.print(Text(report.directory, style="bold"))
    batches = plural(report.batches, "batch", "batches")
    out.print(
        f"read {plural(report.segments, 'segment')} with {batches}: events"
        f" {report.first_seq:,} to {report.last_seq:,},"
        f" {_time(report.first_us)} to {_time(report.last_us)}"
    )
    if report.checkpoints:
        signed = plural(report.checkpoints, "checkpoint")
        out.print(
            f"{signed} signed by {' or '.join(report.public_keys)},"
            f" the last at {_time(report.signed_us)}",
            soft_wrap=True,
        )
    if report.findings:
        out.print()
    for one in report.findings[:ROWS_MAX]:
        out.print(Text.assemble(styled(one.where, "cyan"), f": {printable(one.text)}"))
    hidden = len(report.findings) - ROWS_MAX
    if hidden > 0:
        out.print(f"... and {hidden:,} more; --json lists all.", style="dim")
    out.print(_conclusion(report))


def _conclusion(report: ArchiveReport) -> Text:
    if report.findings:
        return Text(
            f"\nNot shown to be unchanged: {plural(len(report.findings), 'problem')}.", "red"
        )
    first = max(report.first_seq, report.chained_from)
    text = f"Whole and unchanged from event {first:,} to event {report.signed_seq:,}."
    if report.batches_after:
        after = plural(report.batches_after, "batch", "batches")
        text += f" {after} after the last signature: not confirmed yet."
    return Text(text, style="green")


def _time(at_us: int) -> str:
    try:
        return at(instant(at_us))
    except (OverflowError, ValueError):  # a changed line may hold any number
        return f"{at_us} µs"
