"""Results of pipeline commands as text."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.cli.rendering.console import console, note, plural, table
from waypost.policy.tiers import UNLIMITED
from waypost.wire.printable import printable

if TYPE_CHECKING:
    from waypost.pipeline.ingest.job import IngestSummary
    from waypost.pipeline.jobs.convert import ConversionSummary
    from waypost.pipeline.jobs.import_trace import TraceSummary
    from waypost.pipeline.jobs.stream import StreamSummary
    from waypost.pipeline.replay.backtest import Backtest
    from waypost.pipeline.replay.recommend import Recommendation
    from waypost.pipeline.reports.report import ReportSummary
    from waypost.pipeline.tables.build import BuildSummary

_ROWS = 10
_LABELS = {"accepted": "stored"}
"""Decisions in the words of other texts; JSON keeps the name of the event."""


def show_ingested(summary: "IngestSummary") -> None:
    """Print what was new in the journals, and what could not be read."""
    out = console()
    if not summary.segments:
        out.print("No new events in the journals.")
    else:
        out.print(
            f"Ingested {plural(summary.events, 'event')} from"
            f" {plural(summary.segments, 'segment')} of {plural(summary.relays, 'relay')},"
            f" {_days(summary.days)}."
        )
    if summary.corrupt:
        note(f"{plural(summary.corrupt, 'line')} could not be read; see LAKE/corrupt")
    if summary.missing:
        note(f"{plural(summary.missing, 'event')} counted in the journal but missing from it")
    _show_notes(summary.notes)


def show_converted(summary: "ConversionSummary") -> None:
    """Print how much was converted."""
    if summary.days:
        events = plural(summary.events, "event")
        console().print(f"Converted {events} of {_days(summary.days)}.")
    else:
        console().print("The lake has the present layout: nothing to convert.")


def show_built(summary: "BuildSummary") -> None:
    """Print the days that were written."""
    if summary.nothing_new:
        console().print("The tables are up to date.")
    else:
        messages = plural(summary.messages, "message")
        console().print(f"Built the tables of {_days(summary.days)}: {messages}.")
    _show_notes(summary.notes)


def show_report(summary: "ReportSummary") -> None:
    """Print the headline, the findings, and the path of the page."""
    out = console()
    out.print()
    out.print(printable(summary.headline))
    for finding in summary.findings[:_ROWS]:
        out.print(f"  - {printable(finding)}")
    out.print()
    out.print(f"Report: {summary.path}", soft_wrap=True)


def show_streamed(summary: "StreamSummary") -> None:
    """Print what a stream ingested."""
    console().print(
        f"Ingested {plural(summary.events, 'event')} of {plural(summary.relays, 'relay')}."
        " The tables are up to date."
    )
    _show_notes(summary.notes)


def show_backtest(result: "Backtest") -> None:
    """Print how many decisions differ, by reason, tier and sender."""
    out = console()
    share = result.differences / result.messages if result.messages else 0.0
    out.print(
        f"Replayed {plural(result.messages, 'arrival')}:"
        f" {plural(result.differences, 'difference')} ({share:.2%})."
    )
    for text in result.notes:
        note(text)
    if result.counted:
        flood = plural(result.counted, "rejection")
        out.print(f"Not replayed: {flood} of floods, which the journal only counts.")
    if not result.differences:
        return
    rejected = table("rejected for", "was", "would be", numbers=("was", "would be"))
    for reason in sorted({*result.rejected_before, *result.rejected}):
        was, would_be = result.rejected_before.get(reason, 0), result.rejected.get(reason, 0)
        rejected.add_row(reason, f"{was:,}", f"{would_be:,}")
    out.print(rejected)
    changes = table("was", "would be", "arrivals", numbers=("arrivals",))
    changed = [
        (count, before, after)
        for before, afters in result.by_reason.items()
        for after, count in afters.items()
        if before != after
    ]
    for count, before, after in sorted(changed, reverse=True):
        changes.add_row(_LABELS.get(before, before), _LABELS.get(after, after), f"{count:,}")
    out.print(changes)
    tiers = table("tier", "differences", numbers=("differences",))
    for tier, count in sorted(result.by_tier.items()):
        tiers.add_row(str(tier), f"{count:,}")
    out.print(tiers)
    affected = table("relay", "sender", "differences", numbers=("differences",))
    for one in result.by_sender[:_ROWS]:
        affected.add_row(printable(one.relay), printable(one.sender), f"{one.differences:,}")
    out.print(affected)
    if result.out:
        out.print(f"Every decision: {result.out}")


def show_recommendation(result: "Recommendation") -> None:
    """Print the limits, what each would reject, and the settings for config.json."""
    out = console()
    for text in result.notes:
        note(text)
    if not result.limits:
        return
    limits = table("limit", "now", "tightest", numbers=("now", "tightest"))
    for one in result.limits:
        now = "no limit" if one.current >= UNLIMITED else f"{one.current:,}"
        limits.add_row(one.path, now, f"{one.recommended:,}")
    out.print(limits)
    for one in result.limits:
        out.print()
        out.print(f"{one.path}: share of messages rejected")
        curve = table("limit", "wanted", "other", numbers=("limit", "wanted", "other"))
        for point in one.curve:
            chosen = "bold" if point.limit == one.recommended else ""
            curve.add_row(
                f"{point.limit:,}", f"{point.wanted:.3%}", f"{point.unwanted:.1%}", style=chosen
            )
        out.print(curve)
    out.print(
        f"Together they reject {result.measured:.3%} of {result.wanted:,} wanted messages"
        f" (history: {result.measured_before:.3%}). For config.json:"
    )
    out.print(msgspec.json.format(msgspec.json.encode(result.settings)).decode())


def show_trace(summary: "TraceSummary", lake: str) -> None:
    """Print what was imported from a trace."""
    out = console()
    out.print(
        f"Imported {plural(summary.messages, 'message')} from {plural(summary.senders, 'sender')}"
        f" to {plural(summary.recipients, 'recipient')} as relay {summary.relay!r},"
        f" {_days(summary.days)}; {summary.read:,} read, {summary.waiting:,} unread."
    )
    if summary.bad_lines:
        examples = "; ".join(summary.bad_examples)
        note(f"{plural(summary.bad_lines, 'line')} skipped: {examples}")
    _show_notes(summary.notes)
    out.print(f"Next: waypost pipeline backtest --lake {lake} --settings FILE")


def show_restored(result: Mapping[str, Any]) -> None:
    """Print how many pairs were restored."""
    console().print(
        f"Restored {plural(result['restored'], 'pair')} in {result['data_dir']}, of"
        f" {result['pairs']:,} that relay {result['relay']!r} had."
    )


def _show_notes(notes: list[str]) -> None:
    for text in notes:
        note(text)


def _days(days: list[str]) -> str:
    if not days:
        return "no days"
    return days[0] if len(days) == 1 else f"{len(days):,} days from {days[0]} to {days[-1]}"
