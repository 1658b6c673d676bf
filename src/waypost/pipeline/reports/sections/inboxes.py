"""Sections on inboxes: waiting times and fill levels."""

from waypost.pipeline.reports.charts.heatmap import Cell, Heatmap, draw_heatmap
from waypost.pipeline.reports.charts.lines import Line, Lines, draw_lines
from waypost.pipeline.reports.charts.svg import Times
from waypost.pipeline.reports.data import Percentiles, ReportData
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
    ReportTable,
    Section,
    omitted,
    qualified_name,
    require_period,
)

_PERCENTILES = ["p50", "p95", "p99"]


def latency_section(report: ReportData) -> Section:
    """Describe the waiting times of messages."""
    title = "Waiting times"
    latency = report.latency
    unacked = [_unacked_table(report)] if latency.unacked else []
    if not latency.steps:
        return Section("latency", title, "No message was delivered in this period.", [], unacked)
    worst = max(latency.steps, key=lambda one: one.wait.wait_p95_ms or 0)
    width = step(latency.step_ms)
    takeaway = (
        f"Half of {plural(latency.overall.messages, 'message')} were delivered within"
        f" {_time(latency.overall.wait_p50_ms)}, 95% within {_time(latency.overall.wait_p95_ms)}."
        f" The slowest {width} began at {at_minute(worst.at_ms)}: 95% within"
        f" {_time(worst.wait.wait_p95_ms)}."
    )
    tables = [_latency_table(report), *unacked]
    return Section("latency", title, takeaway, [_latency_figure(report)], tables)


def _latency_figure(report: ReportData) -> Figure:
    steps = report.latency.steps
    period = require_period(report)
    times = Times(period.first_ms, period.last_ms, report.latency.step_ms)
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
        f"Wait until delivery, per {width}",
        "Three lines over time: the longest wait of 50% (p50), 95% (p95) and 99% (p99) of the"
        " messages.",
        lambda canvas: draw_lines(canvas, Lines(times, lines)),
        ReportTable(
            f"Wait per {width}, by time of arrival",
            ["From", "Messages", *_PERCENTILES],
            [[instant(one.at_ms), number(one.wait.messages), *_waits(one.wait)] for one in steps],
            frozenset({"Messages", *_PERCENTILES}),
        ),
        "The scale is logarithmic if the values differ widely.",
    )


def _latency_table(report: ReportData) -> ReportTable:
    latency = report.latency
    rows = [
        [
            qualified_name(report, one.relay, one.endpoint),
            number(one.wait.messages),
            share(one.waited_ms, latency.waited_ms),
            *_waits(one.wait),
            _time(one.wait.total_p50_ms),
            _time(one.wait.total_p95_ms),
        ]
        for one in latency.inboxes
    ]
    numbers = [
        "Messages",
        "Share",
        "Wait p50",
        "p95",
        "p99",
        "Total p50",
        "Total p95",
    ]
    return ReportTable(
        "Inboxes with the largest share of all waiting; total is from arrival to ack",
        ["Inbox", *numbers],
        rows,
        frozenset(numbers),
        omitted(latency.more, "inbox", "inboxes"),
    )


def _unacked_table(report: ReportData) -> ReportTable:
    end_ms = require_period(report).last_ms
    rows = [
        [
            qualified_name(report, one.relay, one.endpoint),
            number(one.messages),
            number(one.leased),
            instant(one.oldest_ms),
            duration(max(0, end_ms - one.oldest_ms)),
        ]
        for one in report.latency.unacked
    ]
    return ReportTable(
        "Inboxes with unacknowledged messages at the end, the oldest first",
        ["Inbox", "Messages", "Leased", "Oldest from", "Age"],
        rows,
        frozenset({"Messages", "Leased", "Age"}),
        omitted(report.latency.unacked_more, "inbox", "inboxes"),
    )


def _waits(wait: Percentiles) -> list[str]:
    return [_time(one) for one in (wait.wait_p50_ms, wait.wait_p95_ms, wait.wait_p99_ms)]


def _time(ms: float | None) -> str:
    return "–" if ms is None else duration(ms)


def pressure_section(report: ReportData) -> Section:
    """Describe the fill levels of inboxes."""
    title = "Pressure"
    pressure = report.pressure
    if not pressure.inboxes:
        return Section("pressure", title, "Nothing arrived at any inbox in this period.")
    first = pressure.inboxes[0]
    name = qualified_name(report, first.relay, first.endpoint)
    warned = (
        f"{plural(pressure.warned, 'inbox', 'inboxes')} reached the warning level of"
        f" {pressure.warning_at:.0%} of the cap."
        if pressure.warned
        else f"No inbox reached the warning level of {pressure.warning_at:.0%} of the cap."
    )
    takeaway = (
        f"{warned} The fullest was {name}, {_fill_level(first.peak)} at {at_minute(first.peak_ms)}."
    )
    return Section(
        "pressure", title, takeaway, [_pressure_figure(report)], [_pressure_table(report)]
    )


def _fill_level(pressure: float) -> str:
    return (
        "full"
        if pressure >= 1
        else f"{pressure:.3g} of its cap"
        if pressure < 0.001
        else f"{pressure:.0%} full"
    )


def _pressure_figure(report: ReportData) -> Figure:
    pressure, period = report.pressure, require_period(report)
    times = Times(period.first_ms, period.last_ms, period.coarse_step_ms)
    width = step(period.coarse_step_ms)
    names = [qualified_name(report, one.relay, one.endpoint) for one in pressure.inboxes]
    data = Heatmap(
        times,
        [(name, f"peak {one.peak:.0%}") for name, one in zip(names, pressure.inboxes, strict=True)],
        [Cell(one.inbox, one.at_ms, one.pressure) for one in pressure.steps],
        pressure.warning_at,
    )
    return Figure(
        f"Highest pressure per {width}, fullest inboxes first",
        f"A row for each inbox and a cell for each {width}; a stronger colour is a fuller inbox.",
        lambda canvas: draw_heatmap(canvas, data),
        ReportTable(
            f"Highest pressure per {width}",
            ["Inbox", "From", "Pressure"],
            [
                [names[one.inbox], instant(one.at_ms), f"{one.pressure:.0%}"]
                for one in pressure.steps
            ],
            frozenset({"Pressure"}),
        ),
        "Pressure is measured on arrival; a row is empty where nothing arrived.",
    )


def _pressure_table(report: ReportData) -> ReportTable:
    columns = ["Inbox", "Peak", "At", "Most messages", "Cap", "Minutes at warning level"]
    rows = [
        [
            qualified_name(report, one.relay, one.endpoint),
            f"{one.peak:.0%}",
            instant(one.peak_ms),
            number(one.depth_peak),
            number(one.depth_max) if one.depth_max else "–",
            number(one.minutes_warned),
        ]
        for one in report.pressure.inboxes
    ]
    numbers = frozenset({"Peak", "Most messages", "Cap", "Minutes at warning level"})
    after = omitted(report.pressure.more, "inbox", "inboxes")
    return ReportTable("The fullest inboxes", columns, rows, numbers, after)
