"""The time span that a lake covers, and its division into steps."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import Period
from waypost.pipeline.reports.formatting import DAY_MS, HOUR_MS, MINUTE_MS
from waypost.pipeline.reports.queries.rounds import Query, Section
from waypost.pipeline.reports.queries.table_reader import ms, table

STEPS_MAX = 200
COARSE_STEPS_MAX = 100
COUNT_MIN = 50
FEW_STEPS = 24
"""Longer steps are not used if fewer than this would remain."""
_STEPS_MS = [
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28)),
]


def step_for(span_ms: int, most: int) -> int:
    """Return the shortest step, in ms, of which at most `most` cover a span."""
    for step_ms in _STEPS_MS:
        if span_ms <= step_ms * (most - 1):  # the first step may begin before the span does
            return step_ms
    months = -(-span_ms // (_STEPS_MS[-1] * (most - 1)))
    return _STEPS_MS[-1] * months


def smooth_step(period: Period, count: int) -> int:
    """Return a step, in ms, with `COUNT_MIN` of `count` evenly spread items."""
    span_ms = period.last_ms - period.first_ms
    for step_ms in _STEPS_MS:
        long_enough = step_ms >= period.step_ms and step_ms * count >= COUNT_MIN * span_ms
        if long_enough or step_ms * FEW_STEPS >= span_ms:
            return max(step_ms, period.step_ms)
    return period.step_ms


def query_period(lake: Lake) -> Section[Period | None]:
    """Return the time span of arrivals, breakers and sessions; None without any."""
    instants = (
        _span(table(lake, "traffic"), "minute", MINUTE_MS)
        .unionAll(_span(table(lake, "breakers"), "at", 1))
        .unionAll(_span(table(lake, "sessions"), "connected_at", 1))
    )
    (spans,) = yield [Query(instants)]
    known = [row for row in spans.rows if row["first"] is not None]
    if not known:
        return None
    return period_of(min(row["first"] for row in known), max(row["last"] for row in known))


def period_of(first_ms: int, last_ms: int) -> Period:
    """Return the period with its steps; it begins at the start of a step."""
    span_ms = last_ms - first_ms
    step_ms, coarse_ms = step_for(span_ms, STEPS_MAX), step_for(span_ms, COARSE_STEPS_MAX)
    begins_ms = first_ms - first_ms % min(coarse_ms, DAY_MS)
    if last_ms - begins_ms > STEPS_MAX * step_ms:
        begins_ms = first_ms - first_ms % min(step_ms, DAY_MS)
    return Period(begins_ms, last_ms, step_ms, coarse_ms, first_ms)


def step_of(period: Period, at_ms: Column, step_ms: int | None = None) -> Column:
    """Return the start, in ms, of a time's step: the period's, or one of `step_ms`."""
    width_ms = F.lit(step_ms or period.step_ms)
    return (at_ms - F.pmod(at_ms - F.lit(period.first_ms), width_ms)).alias("at_ms")


def _span(rows: DataFrame, column: str, lasts_ms: int) -> DataFrame:
    return rows.agg(
        F.min(ms(column)).alias("first"), (F.max(ms(column)) + F.lit(lasts_ms)).alias("last")
    )
