"""How inboxes did: how long messages waited in them, and how full they were."""

from waypost.pipeline.reports.charts.drawing import Times
from waypost.pipeline.reports.charts.heatmap import Cell, Heatmap, draw_heatmap
from waypost.pipeline.reports.charts.lines import Line, Lines, draw_lines
from waypost.pipeline.reports.data import Facts, Percentiles
from waypost.pipeline.reports.formatting import (
    at_minute,
    duration,
    instant,
    number,
    plural,
    share,
    step,
)
from waypost.pipeline.reports.sections.model import (
    Figure,
    Section,
    Table,
    and_more,
    known_period,
    named,
)

_PERCENTILES = ["p50", "p95", "p99"]


def latency_section(facts: Facts) -> Section:
    """How long messages waited."""
    title = "Waiting times"
    latency = facts.latency
    if not latency.steps:
        return Section("latency", title, "No message was handed out in this period.")
    worst = max(latency.steps, key=lambda one: one.wait.wait_p95_ms or 0)
    width = step(latency.step_ms)
    takeaway = (
        f"Half of {plural(latency.overall.messages, 'message')} were handed out within"
        f" {_time(latency.overall.wait_p50_ms)}, 95% within {_time(latency.overall.wait_p95_ms)}."
        f" The slowest {width} began at {at_minute(worst.at_ms)}: 95% within"
        f" {_time(worst.wait.wait_p95_ms)}."
    )
    return Section("latency", title, takeaway, [_latency_figure(facts)], [_latency_table(facts)])


def _latency_figure(facts: Facts) -> Figure:
    steps = facts.latency.steps
    period = known_period(facts)
    times = Times(period.first_ms, period.last_ms, facts.latency.step_ms)
    percentiles = {
        "p50": {one.at_ms: one.wait.wait_p50_ms for one in steps},
        "p95": {one.at_ms: one.wait.wait_p95_ms for one in steps},
        "p99": {one.at_ms: one.wait.wait_p99_ms for one in steps},
    }
    lines = [
        Line(name, f"line {name}", {at: value for at, value in values.items() if value is not None})
        for name, values in percentiles.items()
    ]
    width = step(times.step_ms)
    return Figure(
        f"Wait until handed out, per {width}",
        "Three lines over time: half (p50), 95% (p95) and 99% (p99) of messages waited at most"
        " this long.",
        lambda look: draw_lines(look, Lines(times, lines)),
        Table(
            f"Wait per {width}, by when a message arrived",
            ["From", "Messages", *_PERCENTILES],
            [[instant(one.at_ms), number(one.wait.messages), *_waits(one.wait)] for one in steps],
            frozenset({"Messages", *_PERCENTILES}),
        ),
        "The scale is logarithmic where values lie far apart.",
    )


def _latency_table(facts: Facts) -> Table:
    latency = facts.latency
    rows = [
        [
            named(facts, one.relay, one.endpoint),
            number(one.wait.messages),
            share(one.waited_ms, latency.waited_ms),
            *_waits(one.wait),
            _time(one.wait.total_p50_ms),
            _time(one.wait.total_p95_ms),
        ]
        for one in latency.inboxes
    ]
    numbers = ["Messages", "Of all waiting", "Wait p50", "p95", "p99", "Done p50", "Done p95"]
    return Table(
        "Inboxes where most time was spent waiting; done is from arrival to acknowledgement",
        ["Inbox", *numbers],
        rows,
        frozenset(numbers),
        and_more(latency.more, "inbox", "inboxes"),
    )


def _waits(wait: Percentiles) -> list[str]:
    return [_time(one) for one in (wait.wait_p50_ms, wait.wait_p95_ms, wait.wait_p99_ms)]


def _time(ms: float | None) -> str:
    return "–" if ms is None else duration(ms)


def pressure_section(facts: Facts) -> Section:
    """How full inboxes were."""
    title = "Pressure"
    pressure = facts.pressure
    if not pressure.inboxes:
        return Section("pressure", title, "Nothing arrived at any inbox in this period.")
    first = pressure.inboxes[0]
    name = named(facts, first.relay, first.endpoint)
    warned = (
        f"{plural(pressure.warned, 'inbox', 'inboxes')} reached the warning at"
        f" {pressure.warning_at:.0%} of the cap."
        if pressure.warned
        else f"No inbox reached the warning at {pressure.warning_at:.0%} of the cap."
    )
    takeaway = (
        f"{warned} The fullest was {name}, {_full(first.peak)} at {at_minute(first.peak_ms)}."
    )
    return Section("pressure", title, takeaway, [_pressure_figure(facts)], [_pressure_table(facts)])


def _full(pressure: float) -> str:
    return (
        "full"
        if pressure >= 1
        else f"{pressure:.3g} of its cap"
        if pressure < 0.001
        else f"{pressure:.0%} full"
    )


def _pressure_figure(facts: Facts) -> Figure:
    pressure, period = facts.pressure, known_period(facts)
    times = Times(period.first_ms, period.last_ms, period.coarse_step_ms)
    width = step(period.coarse_step_ms)
    names = [named(facts, one.relay, one.endpoint) for one in pressure.inboxes]
    data = Heatmap(
        times,
        [(name, f"peak {one.peak:.0%}") for name, one in zip(names, pressure.inboxes, strict=True)],
        [Cell(one.inbox, one.at_ms, one.pressure) for one in pressure.steps],
        pressure.warning_at,
    )
    return Figure(
        f"Highest pressure per {width}, fullest inboxes first",
        f"A row for each inbox and a cell for each {width}; the stronger its colour, the fuller.",
        lambda look: draw_heatmap(look, data),
        Table(
            f"Highest pressure per {width}",
            ["Inbox", "From", "Pressure"],
            [
                [names[one.inbox], instant(one.at_ms), f"{one.pressure:.0%}"]
                for one in pressure.steps
            ],
            frozenset({"Pressure"}),
        ),
        "Pressure is seen when something arrives; where nothing did, the row is bare.",
    )


def _pressure_table(facts: Facts) -> Table:
    columns = ["Inbox", "Peak", "At", "Most messages", "Cap", "Minutes at the warning"]
    rows = [
        [
            named(facts, one.relay, one.endpoint),
            f"{one.peak:.0%}",
            instant(one.peak_ms),
            number(one.depth_peak),
            number(one.depth_max) if one.depth_max else "–",
            number(one.minutes_warned),
        ]
        for one in facts.pressure.inboxes
    ]
    numbers = frozenset({"Peak", "Most messages", "Cap", "Minutes at the warning"})
    after = and_more(facts.pressure.more, "inbox", "inboxes")
    return Table("The fullest inboxes", columns, rows, numbers, after)
