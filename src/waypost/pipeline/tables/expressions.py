"""Words that several tables use about a row of `events`, each said once.

An *arrival* is an `accepted` or `rejected` line. A *counted* line stands for `count` refusals of a
flood, all in the minute of `since_us`; every other line stands for one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS, MOVEMENTS
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED, Reason

_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US
_DAY_US = 24 * _HOUR_US

KEY = ("relay", "endpoint", "id")
"""What a message is known by, as long as its id does not come again."""


def arrivals_of(events: DataFrame) -> DataFrame:
    """Lines about messages that arrived and were judged."""
    return events.where(F.col("kind").isin(*ARRIVALS))


def movements_of(events: DataFrame) -> DataFrame:
    """Lines about what happened to stored messages."""
    return events.where(F.col("kind").isin(*MOVEMENTS))


def is_rejected() -> Column:
    """An arrival that was turned away."""
    return F.col("kind") == "rejected"


def has_endpoint() -> Column:
    """An arrival at a mailbox; others were refused as a whole, or nobody was there."""
    return F.col("endpoint") != ""


def is_stored() -> Column:
    """An arrival that is now in a mailbox, to be delivered."""
    return (F.col("kind") == "accepted") & has_endpoint()


def is_kept() -> Column:
    """An arrival that left a message behind: stored, or refused and kept as a dead letter."""
    dead_lettered = is_rejected() & F.col("reason").isin(*sorted(DEAD_LETTERED))
    return is_stored() | dead_lettered


def rejected_for(*reasons: Reason) -> Column:
    """An arrival that was turned away for one of `reasons`."""
    return is_rejected() & F.col("reason").isin(*(str(reason) for reason in reasons))


def passed_rate_limit() -> Column:
    """An arrival that the relay remembers as "last seen", whatever came of it then."""
    return ~rejected_for(*sorted(UNCOUNTED))


def weight() -> Column:
    """How many arrivals a line stands for."""
    return F.when(is_rejected(), F.col("count")).otherwise(F.lit(1))


def publishes() -> Column:
    """How many publishes a line stands for: a fan-out is told by its first part."""
    return F.when(F.col("part") == 0, weight()).otherwise(F.lit(0))


def happened_us() -> Column:
    """When an arrival happened: a counted line is written later, perhaps on the next day."""
    counted = is_rejected() & (F.col("since_us") > 0)
    same_day = _floor(F.col("since_us"), _DAY_US) == _floor(F.col("at_us"), _DAY_US)
    return F.when(counted & same_day, F.col("since_us")).otherwise(F.col("at_us"))


def minute_of(instant_us: Column) -> Column:
    """The first µs of the minute."""
    return _floor(instant_us, _MINUTE_US)


def hour_of(instant: Column) -> Column:
    """The first instant of the hour."""
    return F.date_trunc("hour", instant)


def total(amount: Column, where: Column | None = None) -> Column:
    """The sum over a group, 0 for nothing."""
    counted = amount if where is None else F.when(where, amount)
    return F.coalesce(F.sum(counted), F.lit(0)).cast("bigint")


def times(where: Column) -> Column:
    """How many arrivals of a group are so, counted lines in full."""
    return total(weight(), where)


def elapsed_ms(start_us: Column, end_us: Column) -> Column:
    """From one instant in µs to another, in ms."""
    return (end_us - start_us) / F.lit(1000.0)


def _floor(instant_us: Column, unit_us: int) -> Column:
    return instant_us - F.pmod(instant_us, F.lit(unit_us))
