"""What to look at in a report: what stands out, each with advice and the section with details.

The order is that of a relay's own list: what rejects messages first, pending last.
"""

from collections.abc import Iterator

import msgspec

from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.formatting import at_minute, duration, number, plural, share
from waypost.pipeline.reports.sections.incidents import KINDS, short_chain
from waypost.pipeline.reports.sections.model import qualified_name, require_period
from waypost.pipeline.reports.sections.traffic import reason_label

FINDINGS_MAX = 12
EACH_MAX = 2
REJECTED_SHARE_MIN = 0.05
REJECTIONS_MIN = 20
"""As in the list of a running relay: a sender with fewer rejections made a mistake."""
OPEN_MIN_MS = 60_000
AGE_MIN_MS = 30 * 60_000


class ReportFinding(msgspec.Struct, frozen=True):
    """Something to look at: its kind, a sentence about it, what to do, and its section."""

    kind: str
    text: str
    advice: str
    anchor: str


def what_to_look_at(report: ReportData) -> list[ReportFinding]:
    """Return what stands out, the most urgent first; at most `FINDINGS_MAX`."""
    if report.period is None:
        return []
    found = [
        *_full_inboxes(report),
        *_breakers(report),
        *_rejected_senders(report),
        *_loops(report),
        *_anomalies(report),
        *_filling_inboxes(report),
        *_old_messages(report),
        *_dead_letters(report),
        *_rejections(report),
    ]
    return found[:FINDINGS_MAX]


def _full_inboxes(report: ReportData) -> Iterator[ReportFinding]:
    full = [one for one in report.pressure.inboxes if one.peak >= 1]
    for one in full[:EACH_MAX]:
        name = qualified_name(report, one.relay, one.endpoint)
        yield ReportFinding(
            "full inbox",
            f"{name} was full at {at_minute(one.peak_ms)} with"
            f" {plural(one.depth_peak, 'message')}: new ones were rejected.",
            "Let its agent acknowledge more, or raise reliability.backpressure.",
            "pressure",
        )


def _filling_inboxes(report: ReportData) -> Iterator[ReportFinding]:
    filling = [one for one in report.pressure.inboxes if report.pressure.warning_at <= one.peak < 1]
    if not filling:
        return
    first = filling[0]
    yield ReportFinding(
        "pressure",
        f"{plural(report.pressure.warned, 'inbox', 'inboxes')} reached"
        f" {report.pressure.warning_at:.0%} of the cap;"
        f" {qualified_name(report, first.relay, first.endpoint)} was {first.peak:.0%} full at"
        f" {at_minute(first.peak_ms)}.",
        "Check that its agent is connected and acknowledges.",
        "pressure",
    )


def _breakers(report: ReportData) -> Iterator[ReportFinding]:
    breakers = report.breakers.breakers
    still_open = [one for one in breakers if one.last_state != "CLOSED"]
    long_open = [one for one in breakers if one.open_ms >= OPEN_MIN_MS and one not in still_open]
    for one in [*still_open, *long_open][:EACH_MAX]:
        name = qualified_name(report, one.relay, one.endpoint)
        end = "" if one.last_state == "CLOSED" else ", and has not closed since"
        yield ReportFinding(
            "breaker",
            f"{name} had its circuit breaker open for {duration(one.open_ms)} in total{end}.",
            "Repair what handles its messages, then redrive its dead letters.",
            "breakers",
        )


def _rejected_senders(report: ReportData) -> Iterator[ReportFinding]:
    rejected = [one for one in report.senders.senders if one.rejected >= REJECTIONS_MIN]
    rejected.sort(key=lambda one: (-one.rejected, one.relay, one.sender))
    for one in rejected[:EACH_MAX]:
        yield ReportFinding(
            "rejected sender",
            f"{qualified_name(report, one.relay, one.sender)} had {number(one.rejected)} of"
            f" {plural(one.rejected + one.stored, 'message')} rejected.",
            "Ask its owner to slow it down, or deny it with a rule.",
            "senders",
        )


def _loops(report: ReportData) -> Iterator[ReportFinding]:
    for one in report.anomalies.loops[:EACH_MAX]:
        yield ReportFinding(
            "loop",
            f"{qualified_name(report, one.relay, short_chain(one))} looped"
            f" {plural(one.times, 'time')} and was stopped.",
            "Read one of these messages with waypost explain, and stop the loop at its start.",
            "loops",
        )


def _anomalies(report: ReportData) -> Iterator[ReportFinding]:
    senders = [one for one in report.anomalies.anomalies if one.kind != "loop"]
    for one in senders[:EACH_MAX]:
        yield ReportFinding(
            KINDS.get(one.kind, one.kind),
            f"{qualified_name(report, one.relay, one.sender)} {one.why}.",
            "If this is wanted, give it an override of the limits; if not, a rule.",
            "anomalies",
        )


def _old_messages(report: ReportData) -> Iterator[ReportFinding]:
    end_ms = require_period(report).last_ms
    for one in report.latency.unacked[:1]:
        age_ms = end_ms - one.oldest_ms
        if age_ms >= AGE_MIN_MS:
            count = number(one.messages)
            more = f"; {count} in all are not acknowledged" if one.messages > 1 else ""
            yield ReportFinding(
                "old messages",
                f"{qualified_name(report, one.relay, one.endpoint)} has had a message for"
                f" {duration(age_ms)}{more}.",
                "Start its agent: it is offline, too slow, or keeps the message.",
                "latency",
            )


def _dead_letters(report: ReportData) -> Iterator[ReportFinding]:
    dead = report.dead_letters
    if dead.waiting:
        most = f", most often: {dead.reasons[0].reason}" if dead.reasons else ""
        yield ReportFinding(
            "dead letters",
            f"{plural(dead.waiting, 'dead letter')} open{most}.",
            "Repair the cause, then redrive or purge them.",
            "dead-letters",
        )


def _rejections(report: ReportData) -> Iterator[ReportFinding]:
    rejected, arrivals = report.traffic.total.rejected, report.traffic.arrivals
    if rejected > REJECTED_SHARE_MIN * arrivals and report.rejections.reasons:
        yield ReportFinding(
            "rejections",
            f"{share(rejected, arrivals)} of arrivals were rejected, most often:"
            f" {reason_label(report.rejections.reasons[0].reason)}.",
            "See by reason who was rejected; a backtest shows the effect of other limits.",
            "rejections",
        )
