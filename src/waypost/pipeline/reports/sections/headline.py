"""The report in a few sentences, and its key figures."""

import msgspec

from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.formatting import (
    duration,
    instant,
    join_names,
    number,
    plural,
    share,
)


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


def _time(ms: float | None) -> str:
    return "–" if ms is None else duration(ms)
