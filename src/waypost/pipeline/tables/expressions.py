"""Column expressions shared by several tables: conditions on events, sums, and texts.

An *arrival* is an `accepted` or `rejected` event. A *counted* event stands for `count` rejections
of a flood, all in the minute of `since_us`; every other event stands for one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS, TRANSITIONS
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED, Reason

_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US
_DAY_US = 24 * _HOUR_US

KEY = ("relay", "endpoint", "id")
"""Identifies a message, unless its sender uses the id again."""


def arrivals_of(events: DataFrame) -> DataFrame:
    """Return the events of messages that arrived and were accepted or rejected."""
    return events.where(F.col("kind").isin(*ARRIVALS))


def transitions_of(events: DataFrame) -> DataFrame:
    """Return the events that changed the state of stored messages."""
    return events.where(F.col("kind").isin(*TRANSITIONS))


def is_rejected() -> Column:
    """Return whether an arrival was rejected."""
    return F.col("kind") == "rejected"


def has_endpoint() -> Column:
    """Return whether an arrival reached a mailbox: not rejected whole, not without recipient."""
    return F.col("endpoint") != ""


def is_stored() -> Column:
    """Return whether an arrival was stored in a mailbox for delivery."""
    return (F.col("kind") == "accepted") & has_endpoint()


def leaves_message() -> Column:
    """Return whether an arrival left a message: stored, or rejected and dead-lettered."""
    kept = F.coalesce("kept", F.lit(True))
    dead_lettered = is_rejected() & F.col("reason").isin(*sorted(DEAD_LETTERED)) & kept
    return is_stored() | dead_lettered


def rejected_for(*reasons: Reason) -> Column:
    """Return whether an arrival was rejected for one of `reasons`."""
    return is_rejected() & F.col("reason").isin(*(str(reason) for reason in reasons))


def is_exhausted() -> Column:
    """Return whether an arrival was rejected because its conversation had no calls left."""
    return rejected_for(Reason.BUDGET_EXCEEDED) & (F.col("call_budget_remaining") <= 0)


def passed_rate_limit() -> Column:
    """Return whether the relay records the arrival as "last seen", stored or not."""
    return ~rejected_for(*sorted(UNCOUNTED))


def weight() -> Column:
    """Return the number of arrivals that an event stands for."""
    return F.when(is_rejected(), F.col("count")).otherwise(F.lit(1))


def publishes() -> Column:
    """Return the number of publishes that an event stands for: only the first part of a fan-out."""
    return F.when(F.col("part") == 0, weight()).otherwise(F.lit(0))


def happened_us() -> Column:
    """Return the time of an arrival: a counted event is written later, perhaps the next day."""
    is_counted = is_rejected() & (F.col("since_us") > 0)
    same_day = _floor(F.col("since_us"), _DAY_US) == _floor(F.col("at_us"), _DAY_US)
    return F.when(is_counted & same_day, F.col("since_us")).otherwise(F.col("at_us"))


def minute_of(instant_us: Column) -> Column:
    """Return the first µs of the minute."""
    return _floor(instant_us, _MINUTE_US)


def hour_of(instant: Column) -> Column:
    """Return the first instant of the hour."""
    return F.date_trunc("hour", instant)


def total(amount: Column, where: Column | None = None) -> Column:
    """Return the sum over a group, 0 if it has no rows."""
    included = amount if where is None else F.when(where, amount)
    return F.coalesce(F.sum(included), F.lit(0)).cast("bigint")


def times(where: Column) -> Column:
    """Return the number of arrivals of a group that meet a condition, counted ones in full."""
    return total(weight(), where)


def elapsed_ms(start_us: Column, end_us: Column) -> Column:
    """Return the milliseconds between two times in µs."""
    return (end_us - start_us) / F.lit(1000.0)


def number(value: Column) -> Column:
    """Format 4120 as "4,120"."""
    return F.format_number(value, 0)


def counted(value: Column, thing: str) -> Column:
    """Format a count with its noun: "1 hop", "2 hops", "4,120 hops"."""
    plural = F.when(value == 1, F.lit(f" {thing}")).otherwise(F.lit(f" {thing}s"))
    return F.concat(number(value), plural)


def sentence(*parts: str | Column) -> Column:
    """Concatenate texts and columns."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else part for part in parts))


def _floor(instant_us: Column, unit_us: int) -> Column:
    return instant_us - F.pmod(instant_us, F.lit(unit_us))
