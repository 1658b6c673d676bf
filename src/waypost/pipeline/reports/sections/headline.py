"""The report in a few sentences, and its highlights."""

import msgspec

from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.formatting import (
    at_minute,
    duration,
    instant,
    join_names,
    number,
    plural,
    share,
)
from waypost.pipeline.reports.sections.incidents import KINDS, short_chain
from waypost.pipeline.reports.sections.model import qualified_name
from waypost.pipeline.reports.sections.traffic import reason_label

HIGHLIGHTS_MAX = 8
REJECTED_SHARE_MIN = 0.05
OPEN_MIN_MS = 60_000


class Highlight(msgspec.Struct, frozen=True):
    """A conspicuous event: its kind, a sentence about it, and the section with details."""

    kind: str
    words: str
    anchor: str


class Tile(msgspec.Struct, frozen=True):
    """A key figure of the period."""

    name: str
    value: str
    note: str = ""


def headline(report: ReportData) -> str:
    """Summarise period, relays, messages, rejections and waiting times."""
    period = report.period
    if period is None:
        return "This lake has no traffic yet."
    scope, traffic = report.scope, report.traffic
    relays = (
        f"relay {scope.relays[0]}"
        if len(scope.relays) == 1
        else plural(len(scope.relays) + scope.relays_more, "relay")
    )
    first_ms = max(period.first_ms, period.known_from_ms)
    text = (
        f"From {instant(first_ms)} to {instant(period.last_ms)} UTC, {relays} stored"
        f" {plural(traffic.total.stored, 'message')} from {plural(scope.senders, 'sender')} for"
        f" {plural(scope.inboxes, 'inbox', 'inboxes')}."
    )
    if traffic.total.rejected:
        text += f" {share(traffic.total.rejected, traffic.arrivals)} of all arrivals were rejected."
    else:
        text += " Nothing was rejected."
    wait = report.latency.overall
    if wait.wait_p50_ms is not None and wait.wait_p95_ms is not None:
        text += (
            f" Half of the messages were delivered within {duration(wait.wait_p50_ms)},"
            f" 95% within {duration(wait.wait_p95_ms)}."
        )
    return text


def tiles(report: ReportData) -> list[Tile]:
    """Return the key figures."""
    traffic, wait = report.traffic, report.latency.overall
    relays = join_names([*report.scope.relays[:3]])
    hidden = len(report.scope.relays) + report.scope.relays_more - 3
    if hidden > 0:
        relays = f"{', '.join(report.scope.relays[:3])} and {number(hidden)} more"
    return [
        Tile(
            "Messages stored",
            number(traffic.total.stored),
            f"on {plural(report.scope.days, 'day')}",
        ),
        Tile(
            "Rejected",
            share(traffic.total.rejected, traffic.arrivals),
            f"{number(traffic.total.rejected)} of {plural(traffic.arrivals, 'arrival')}",
        ),
        Tile("Median wait", _time(wait.wait_p50_ms), f"95% within {_time(wait.wait_p95_ms)}"),
        Tile(
            "Dead letters open",
            number(report.dead_letters.waiting),
            f"of {number(report.dead_letters.messages)}",
        ),
        Tile(
            "Inboxes",
            number(report.scope.inboxes),
            f"with messages from {plural(report.scope.senders, 'sender')}",
        ),
        Tile("Relays", number(len(report.scope.relays) + report.scope.relays_more), relays),
    ]


def highlights(report: ReportData) -> list[Highlight]:
    """Return what stands out, loops and anomalies first; at most `HIGHLIGHTS_MAX`."""
    found = [*_loops(report), *_anomalies(report), *_problems(report)]
    return found[:HIGHLIGHTS_MAX]


def _loops(report: ReportData) -> list[Highlight]:
    return [
        Highlight(
            "loop",
            f"{qualified_name(report, one.relay, short_chain(one))} looped"
            f" {plural(one.times, 'time')} and was stopped.",
            "loops",
        )
        for one in report.anomalies.loops[:2]
    ]


def _anomalies(report: ReportData) -> list[Highlight]:
    senders = [one for one in report.anomalies.anomalies if one.kind != "loop"]
    return [
        Highlight(
            KINDS.get(one.kind, one.kind),
            f"{qualified_name(report, one.relay, one.sender)} {one.why}.",
            "anomalies",
        )
        for one in senders[:3]
    ]


def _problems(report: ReportData) -> list[Highlight]:
    found = []
    if report.pressure.warned:
        first = report.pressure.inboxes[0]
        found.append(
            Highlight(
                "pressure",
                f"{plural(report.pressure.warned, 'inbox', 'inboxes')} reached"
                f" {report.pressure.warning_at:.0%} of the cap; fullest was"
                f" {qualified_name(report, first.relay, first.endpoint)} ({first.peak:.0%} at"
                f" {at_minute(first.peak_ms)}).",
                "pressure",
            )
        )
    for breaker in report.breakers.breakers[:1]:
        if breaker.open_ms >= OPEN_MIN_MS:
            name = qualified_name(report, breaker.relay, breaker.endpoint)
            words = f"{name} had its circuit breaker open for {duration(breaker.open_ms)} in total."
            found.append(Highlight("breaker", words, "breakers"))
    if report.dead_letters.waiting:
        words = f"{plural(report.dead_letters.waiting, 'dead letter')} open: redrive or purge."
        found.append(Highlight("dead letters", words, "dead-letters"))
    rejected = report.traffic.total.rejected
    if rejected > REJECTED_SHARE_MIN * report.traffic.arrivals and report.rejections.reasons:
        words = (
            f"{share(rejected, report.traffic.arrivals)} of arrivals were rejected, most often:"
            f" {reason_label(report.rejections.reasons[0].reason)}."
        )
        found.append(Highlight("rejections", words, "rejections"))
    return found


def _time(ms: float | None) -> str:
    return "–" if ms is None else duration(ms)
