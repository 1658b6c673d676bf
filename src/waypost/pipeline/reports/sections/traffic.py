"""Traffic and refusals over time."""

from waypost.pipeline.reports.charts.columns import Columns, Kind, draw_columns
from waypost.pipeline.reports.charts.drawing import Times
from waypost.pipeline.reports.charts.strips import Strip, Strips, draw_strips
from waypost.pipeline.reports.data import Facts, ReasonTotal
from waypost.pipeline.reports.formatting import (
    at_minute,
    instant,
    listed,
    number,
    plural,
    share,
    size,
    step,
)
from waypost.pipeline.reports.sections.model import Figure, Section, Table, and_more, known_period

REASONS = {
    "rate_limited": "rate limit",
    "backpressure": "mailbox full",
    "quota_exceeded": "sender quota",
    "circuit_open": "breaker open",
    "budget_exceeded": "budget used up",
    "storage_full": "disk full",
    "access_denied": "access denied",
}


def fine_times(facts: Facts) -> Times:
    """The period in its narrow steps."""
    period = known_period(facts)
    return Times(period.first_ms, period.last_ms, period.step_ms)


def traffic_section(facts: Facts) -> Section:
    """What arrived, and whether it was taken."""
    title = "Traffic"
    traffic = facts.traffic
    if not traffic.arrivals:
        return Section("traffic", title, "Nothing was published in this period.")
    takeaway = (
        f"The busiest minute was {at_minute(traffic.busiest_minute_ms)} with"
        f" {plural(traffic.busiest_publishes, 'publish', 'publishes')}."
        f" Of {plural(traffic.arrivals, 'arrival')} {share(traffic.total.stored, traffic.arrivals)}"
        f" were stored and {share(traffic.total.rejected, traffic.arrivals)} refused."
    )
    return Section("traffic", title, takeaway, [_traffic_figure(facts)], [_traffic_table(facts)])


def _traffic_figure(facts: Facts) -> Figure:
    traffic, times = facts.traffic, fine_times(facts)
    kinds = [
        Kind("stored", "stored", {one.at_ms: one.stored for one in traffic.steps}),
        Kind("for nobody", "unclaimed", {one.at_ms: one.unclaimed for one in traffic.steps}),
        Kind("refused", "refused", {one.at_ms: one.rejected for one in traffic.steps}),
    ]
    shown = [kind for kind in kinds if any(kind.values.values())]
    columns = ["From", "Publishes", "Stored", "For nobody", "Refused", "Acked", "Failed"]
    rows = [
        [
            instant(one.at_ms),
            *map(number, (one.publishes, one.stored, one.unclaimed)),
            *map(number, (one.rejected, one.acked, one.failed)),
        ]
        for one in traffic.steps
    ]
    width = step(times.step_ms)
    return Figure(
        f"Arrivals per {width}",
        f"Columns for each {width}: " + listed([kind.name for kind in shown]) + " arrivals.",
        lambda look: draw_columns(look, Columns(times, shown)),
        Table(f"Arrivals per {width}", columns, rows, frozenset(columns[1:])),
    )


def _traffic_table(facts: Facts) -> Table:
    total = facts.traffic.total
    arrivals = facts.traffic.arrivals
    rows = [
        ["Stored", number(total.stored), share(total.stored, arrivals)],
        ["For nobody", number(total.unclaimed), share(total.unclaimed, arrivals)],
        ["Refused", number(total.rejected), share(total.rejected, arrivals)],
        ["Acknowledged", number(total.acked), share(total.acked, total.stored) + " of stored"],
        ["Failed", number(total.failed), share(total.failed, total.stored) + " of stored"],
    ]
    after = f"{size(total.bytes)} were stored, {size(_each(total.bytes, total.stored))} a message."
    return Table(
        "All arrivals", ["", "Messages", "Share"], rows, frozenset({"Messages", "Share"}), after
    )


def _each(total: int, count: int) -> float:
    return total / count if count else 0


def rejections_section(facts: Facts) -> Section:
    """What was refused, when and why."""
    title = "Refusals"
    rejections = facts.rejections
    if not rejections.reasons:
        return Section("refusals", title, "Nothing was refused in this period.")
    most = rejections.reasons[0]
    total = sum(one.rejections for one in rejections.reasons)
    takeaway = (
        f"{plural(total, 'rejection')}; the most frequent reason was {reason_words(most.reason)}"
        f" ({share(most.rejections, total)}, {plural(most.senders, 'sender')})."
    )
    times = fine_times(facts)
    width = step(times.step_ms)
    strips = [_strip(facts, one, total) for one in rejections.reasons]
    steps = sorted({one.at_ms for one in rejections.steps})
    by_step = {(one.at_ms, one.reason): one.rejections for one in rejections.steps}
    columns = ["From", *(reason_words(one.reason) for one in rejections.reasons)]
    figure = Figure(
        f"Refusals per {width}, by reason",
        "A row of columns for each reason, most frequent first. " + takeaway,
        lambda look: draw_strips(look, Strips(times, strips)),
        Table(
            f"Refusals per {width}",
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
        "Each row has its own scale: its highest column is as high as the row.",
    )
    return Section("refusals", title, takeaway, [figure], [_rejections_table(facts)])


def reason_words(reason: str) -> str:
    """A reason as people say it; one that is new here, as it is written."""
    return REASONS.get(reason, reason)


def _strip(facts: Facts, reason: ReasonTotal, total: int) -> Strip:
    values = {
        one.at_ms: float(one.rejections)
        for one in facts.rejections.steps
        if one.reason == reason.reason
    }
    note = f"{number(reason.rejections)} ({share(reason.rejections, total)})"
    return Strip(reason_words(reason.reason), values, note)


def _rejections_table(facts: Facts) -> Table:
    rows = [
        [
            reason_words(one.reason),
            number(one.rejections),
            number(one.senders),
            number(one.inboxes) if one.inboxes else "–",
            one.example,
        ]
        for one in facts.rejections.reasons
    ]
    return Table(
        "Refusals by reason",
        ["Reason", "Refusals", "Senders", "Inboxes", "In the relay’s words"],
        rows,
        frozenset({"Refusals", "Senders", "Inboxes"}),
        and_more(facts.rejections.more, "reason"),
    )
