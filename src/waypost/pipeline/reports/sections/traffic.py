"""Sections on traffic, rejections and connections over time."""

from waypost.pipeline.reports.charts.columns import (
    Columns,
    Series,
    Strip,
    Strips,
    draw_columns,
    draw_strips,
)
from waypost.pipeline.reports.charts.svg import Times
from waypost.pipeline.reports.data import ReasonTotal, ReportData
from waypost.pipeline.reports.formatting import (
    at_minute,
    duration,
    instant,
    join_names,
    number,
    plural,
    share,
    size,
    step,
)
from waypost.pipeline.reports.sections.model import (
    Figure,
    ReportTable,
    Section,
    omitted,
    qualified_name,
    require_period,
)
from waypost.policy.reasons import WORDS


def fine_steps(report: ReportData) -> Times:
    """Return the period in its short steps."""
    period = require_period(report)
    return Times(period.first_ms, period.last_ms, period.step_ms)


def traffic_section(report: ReportData) -> Section:
    """Describe arrivals: stored, rejected, or without recipient."""
    title = "Traffic"
    traffic = report.traffic
    if not traffic.arrivals:
        return Section("traffic", title, "Nothing was published in this period.")
    takeaway = (
        f"The busiest minute was {at_minute(traffic.busiest_minute_ms)} with"
        f" {plural(traffic.busiest_publishes, 'publish', 'publishes')}."
        f" Of {plural(traffic.arrivals, 'arrival')} {share(traffic.total.stored, traffic.arrivals)}"
        f" were stored and {share(traffic.total.rejected, traffic.arrivals)} rejected."
    )
    return Section("traffic", title, takeaway, [_traffic_figure(report)], [_traffic_table(report)])


def _traffic_figure(report: ReportData) -> Figure:
    traffic, times = report.traffic, fine_steps(report)
    steps = traffic.steps
    series = [
        Series("stored", "stored", {one.at_ms: one.stored for one in steps}),
        Series("without recipient", "unclaimed", {one.at_ms: one.unclaimed for one in steps}),
        Series("rejected", "rejected", {one.at_ms: one.rejected for one in steps}),
    ]
    shown = [one for one in series if any(one.values.values())]
    columns = ["From", "Publishes", "Stored", "No recipient", "Rejected", "Acknowledged", "Failed"]
    rows = [
        [
            instant(one.at_ms),
            number(one.publishes),
            number(one.stored),
            number(one.unclaimed),
            number(one.rejected),
            number(one.acked),
            number(one.failed),
        ]
        for one in traffic.steps
    ]
    width = step(times.step_ms)
    return Figure(
        f"Arrivals per {width}",
        f"A stacked column for each {width}: "
        + join_names([kind.name for kind in shown])
        + " arrivals.",
        lambda canvas: draw_columns(canvas, Columns(times, shown)),
        ReportTable(f"Arrivals per {width}", columns, rows, frozenset(columns[1:])),
    )


def _traffic_table(report: ReportData) -> ReportTable:
    total = report.traffic.total
    arrivals = report.traffic.arrivals
    rows = [
        ["Stored", number(total.stored), share(total.stored, arrivals)],
        ["No recipient", number(total.unclaimed), share(total.unclaimed, arrivals)],
        ["Rejected", number(total.rejected), share(total.rejected, arrivals)],
        ["Acknowledged", number(total.acked), share(total.acked, total.stored) + " of stored"],
        ["Failed", number(total.failed), share(total.failed, total.stored) + " of stored"],
    ]
    after = (
        f"{size(total.bytes)} were stored, {size(_mean(total.bytes, total.stored))} per message."
    )
    return ReportTable(
        "All arrivals", ["", "Messages", "Share"], rows, frozenset({"Messages", "Share"}), after
    )


def _mean(total: int, count: int) -> float:
    return total / count if count else 0


def rejections_section(report: ReportData) -> Section:
    """Describe rejections over time and by reason."""
    title = "Rejections"
    rejections = report.rejections
    if not rejections.reasons:
        return Section("rejections", title, "Nothing was rejected in this period.")
    most = rejections.reasons[0]
    total = sum(one.rejections for one in rejections.reasons)
    takeaway = (
        f"{plural(total, 'rejection')}; the most frequent reason was {reason_label(most.reason)}"
        f" ({share(most.rejections, total)}, {plural(most.senders, 'sender')})."
    )
    times = fine_steps(report)
    width = step(times.step_ms)
    strips = [_strip(report, one, total) for one in rejections.reasons]
    steps = sorted({one.at_ms for one in rejections.steps})
    by_step = {(one.at_ms, one.reason): one.rejections for one in rejections.steps}
    columns = ["From", *(reason_label(one.reason) for one in rejections.reasons)]
    figure = Figure(
        f"Rejections per {width}, by reason",
        "A row of columns for each reason, most frequent first. " + takeaway,
        lambda canvas: draw_strips(canvas, Strips(times, strips)),
        ReportTable(
            f"Rejections per {width}",
            columns,
            [
                [
                    instant(at_ms),
                    *(number(by_step.get((at_ms, one.reason), 0)) for one in rejections.reasons),
                ]
                for at_ms in steps
            ],
            frozenset(columns[1:]),
        ),
        "Each row has its own scale: its highest column fills the row.",
    )
    return Section("rejections", title, takeaway, [figure], [_rejections_table(report)])


def reason_label(reason: str) -> str:
    """Return a reason in plain words; an unknown one unchanged."""
    return WORDS.get(reason, reason)


def _strip(report: ReportData, reason: ReasonTotal, total: int) -> Strip:
    values = {
        one.at_ms: float(one.rejections)
        for one in report.rejections.steps
        if one.reason == reason.reason
    }
    note = f"{number(reason.rejections)} ({share(reason.rejections, total)})"
    return Strip(reason_label(reason.reason), values, note)


def _rejections_table(report: ReportData) -> ReportTable:
    rows = [
        [
            reason_label(one.reason),
            number(one.rejections),
            number(one.senders),
            number(one.inboxes) if one.inboxes else "–",
            one.example or "–",
        ]
        for one in report.rejections.reasons
    ]
    return ReportTable(
        "Rejections by reason",
        ["Reason", "Rejections", "Senders", "Inboxes", "Example"],
        rows,
        frozenset({"Rejections", "Senders", "Inboxes"}),
        omitted(report.rejections.more, "reason"),
    )


def connections_section(report: ReportData) -> Section:
    """Describe the WebSocket connections of agents."""
    title = "Connections"
    connections = report.connections
    if not connections.connections:
        return Section("connections", title, "No agent connected by WebSocket in this period.")
    agents = len(connections.agents) + connections.more
    takeaway = (
        f"{plural(connections.connections, 'connection')} from {plural(agents, 'agent')};"
        f" {number(connections.open)} still open."
    )
    if connections.median_ms is not None:
        takeaway += f" Half of those that ended lasted at most {duration(connections.median_ms)}."
    times = fine_steps(report)
    width = step(times.step_ms)
    connected = Series(
        "connected", "stored", {one.at_ms: one.connected for one in connections.steps}
    )
    figure = Figure(
        f"New connections per {width}",
        f"A column for each {width}: the number of new connections.",
        lambda canvas: draw_columns(canvas, Columns(times, [connected])),
        ReportTable(
            f"New connections per {width}",
            ["From", "Connected"],
            [[instant(one.at_ms), number(one.connected)] for one in connections.steps],
            frozenset({"Connected"}),
        ),
        "Workers that share a mailbox count as one connection.",
    )
    table = ReportTable(
        "Agents that connected most often",
        ["Agent", "Connections", "Connected for", "Still open"],
        [
            [
                qualified_name(report, one.relay, one.subject),
                number(one.connections),
                duration(one.connected_ms) if one.connections > one.open else "–",
                number(one.open),
            ]
            for one in connections.agents
        ],
        frozenset({"Connections", "Connected for", "Still open"}),
        omitted(connections.more, "agent"),
    )
    return Section("connections", title, takeaway, [figure], [table])
