"""Sections on problems: circuit breakers, dead letters, loops and anomalies."""

from waypost.pipeline.reports.charts.bars import Bar, Bars, draw_bars
from waypost.pipeline.reports.charts.timeline import Span, Timeline, TimelineRow, draw_timeline
from waypost.pipeline.reports.data import Breaker, DeadLetterSummary, Loop, ReportData
from waypost.pipeline.reports.formatting import day, duration, instant, number, plural, share
from waypost.pipeline.reports.sections.model import (
    Figure,
    ReportTable,
    Section,
    omitted,
    qualified_name,
    require_period,
)
from waypost.pipeline.reports.sections.traffic import fine_steps

_STATES = {"OPEN": ("open", "open"), "HALF_OPEN": ("half-open", "half open")}
KINDS = {
    "flood": "flood",
    "one_way": "one way",
    "burst": "burst",
    "loop": "loop",
    "exhausted": "calls used up",
}


def breakers_section(report: ReportData) -> Section:
    """Describe when and where circuit breakers were open."""
    title = "Circuit breakers"
    breakers = report.breakers
    if not breakers.breakers:
        return Section("breakers", title, "No breaker opened in this period.")
    first = breakers.breakers[0]
    longest = qualified_name(report, first.relay, first.endpoint)
    count = len(breakers.breakers) + breakers.more
    takeaway = (
        f"Breakers opened {plural(breakers.opened, 'time')} at"
        f" {plural(count, 'endpoint')}. The longest open was {longest}:"
        f" {duration(first.open_ms)} in total."
    )
    columns = ["Endpoint", "Opened", "Open for", "Last state"]
    table = ReportTable(
        "Breakers by time open",
        columns,
        [
            [
                qualified_name(report, one.relay, one.endpoint),
                number(one.opened),
                duration(one.open_ms),
                _state(one.last_state),
            ]
            for one in breakers.breakers
        ],
        frozenset({"Opened", "Open for"}),
        omitted(breakers.more, "endpoint"),
    )
    return Section("breakers", title, takeaway, [_breakers_figure(report)], [table])


def _breakers_figure(report: ReportData) -> Figure:
    rows = [_timeline_row(report, one) for one in report.breakers.breakers]
    hidden = sum(one.spans_more for one in report.breakers.breakers)
    data = [
        [row.name, span.name, instant(span.from_ms), duration(span.to_ms - span.from_ms)]
        for row in rows
        for span in row.spans
    ]
    note = f"Only the longest spans are shown; {number(hidden)} shorter ones are not."
    return Figure(
        "When breakers were open",
        "A row for each endpoint; a filled span is open, a hatched one half open.",
        lambda canvas: draw_timeline(
            canvas, Timeline(fine_steps(report), rows, [*_STATES.values()])
        ),
        ReportTable(
            "When breakers were open",
            ["Endpoint", "State", "From", "For"],
            data,
            frozenset({"For"}),
        ),
        note if hidden else "",
    )


def _timeline_row(report: ReportData, breaker: Breaker) -> TimelineRow:
    last_ms = require_period(report).last_ms
    spans = [
        Span(one.from_ms, last_ms if one.to_ms is None else one.to_ms, *_STATES[one.state])
        for one in breaker.spans
        if one.state in _STATES
    ]
    return TimelineRow(
        qualified_name(report, breaker.relay, breaker.endpoint), spans, duration(breaker.open_ms)
    )


def _state(state: str) -> str:
    return state.lower().replace("_", " ")


def dead_letters_section(report: ReportData) -> Section:
    """Describe the messages that could not be delivered."""
    title = "Dead letters"
    dead = report.dead_letters
    if not dead.messages:
        return Section("dead-letters", title, "There were no dead letters in this period.")
    first = dead.reasons[0]
    takeaway = (
        f"{plural(dead.messages, 'dead letter')}: {number(dead.waiting)} open,"
        f" {number(dead.redriven)} redriven, {number(dead.purged)} purged. The most frequent"
        f" reason was “{first.reason}” ({share(first.messages, dead.messages)})."
    )
    figure = Figure(
        "Dead letters by reason",
        "A bar for each reason: open dead letters, and all others.",
        lambda canvas: draw_bars(canvas, _dead_bars(dead)),
        _reasons_table(dead),
    )
    inboxes = ReportTable(
        "Inboxes with the most dead letters",
        ["Inbox", "Dead letters", "Open"],
        [
            [
                qualified_name(report, one.relay, one.endpoint),
                number(one.messages),
                number(one.waiting),
            ]
            for one in dead.inboxes
        ],
        frozenset({"Dead letters", "Open"}),
        omitted(dead.inboxes_more, "inbox", "inboxes"),
    )
    return Section("dead-letters", title, takeaway, [figure], [_reasons_table(dead), inboxes])


def _dead_bars(dead: DeadLetterSummary) -> Bars:
    bars = [
        Bar(
            one.reason,
            [("rejected", one.waiting), ("unclaimed", one.messages - one.waiting)],
            f"{number(one.messages)}, {number(one.waiting)} open",
        )
        for one in dead.reasons
    ]
    kinds = [("rejected", "open"), ("unclaimed", "redriven, purged or expired")]
    return Bars(bars, kinds=kinds)


def _reasons_table(dead: DeadLetterSummary) -> ReportTable:
    numbers = ["Dead letters", "Open", "Redriven", "Purged", "Inboxes"]
    rows = [
        [
            one.reason,
            *map(number, (one.messages, one.waiting, one.redriven, one.purged, one.inboxes)),
            instant(one.last_ms),
        ]
        for one in dead.reasons
    ]
    after = omitted(dead.reasons_more, "reason")
    columns = ["Reason", *numbers, "Last"]
    return ReportTable("Dead letters by reason", columns, rows, frozenset(numbers), after)


def loops_section(report: ReportData) -> Section:
    """Describe the loops that budgets stopped."""
    title = "Loops"
    loops = report.anomalies.loops
    if not loops:
        return Section("loops", title, "No message went in a loop.")
    first = loops[0]
    takeaway = (
        f"{plural(len(loops) + report.anomalies.loops_more, 'loop')}. The most frequent one:"
        f" {short_chain(first)}, {plural(first.times, 'time')}."
    )
    table = ReportTable(
        "Loops by how often they were stopped",
        ["Chain", "Stopped", "Senders", "First", "Last"],
        [
            [
                _with_relay(report, one),
                number(one.times),
                number(one.senders),
                instant(one.first_ms),
                instant(one.last_ms),
            ]
            for one in loops
        ],
        frozenset({"Stopped", "Senders"}),
        omitted(report.anomalies.loops_more, "loop"),
    )
    return Section("loops", title, takeaway, [], [table])


def chain_text(loop: Loop) -> str:
    """Format the chain of a loop: a → b → a."""
    ends = loop.chain and loop.chain[-1] == loop.endpoint
    return " → ".join(loop.chain if ends else [*loop.chain, loop.endpoint])


def short_chain(loop: Loop) -> str:
    """Format a chain, shortened if it is long: a → b → … → a."""
    chain = chain_text(loop).split(" → ")
    return " → ".join(chain if len(chain) <= 4 else [*chain[:2], "…", chain[-1]])


def _with_relay(report: ReportData, loop: Loop) -> str:
    return qualified_name(report, loop.relay, chain_text(loop))


def anomalies_section(report: ReportData) -> Section:
    """Describe the conspicuous senders."""
    title = "Anomalies"
    anomalies = report.anomalies.anomalies
    if not anomalies:
        return Section("anomalies", title, "No sender stood out.")
    count = len(anomalies) + report.anomalies.anomalies_more
    first = anomalies[0]
    takeaway = (
        f"{plural(count, 'case')}. The largest: {qualified_name(report, first.relay, first.sender)}"
        f" {first.why}."
    )
    table = ReportTable(
        "Anomalies, each on its worst day",
        ["Sender", "Kind", "What happened", "Worst day", "Days"],
        [
            [
                qualified_name(report, one.relay, one.sender),
                KINDS.get(one.kind, one.kind),
                one.why,
                day(one.worst_day_ms),
                number(one.days),
            ]
            for one in anomalies
        ],
        frozenset({"Days"}),
        omitted(report.anomalies.anomalies_more, "case"),
    )
    return Section("anomalies", title, takeaway, [], [table])
