"""What an inbox goes through, row by row: its arrivals, and what history tells of its messages."""

from collections.abc import Iterable
from enum import IntEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, is_arrival
from waypost.policy.reasons import DEAD_LETTERED


class Step(IntEnum):
    """What a row is to its inbox. Up to `BURIED` they are arrivals."""

    ARRIVED = 0
    REJECTED = 1
    BURIED = 2
    """Refused, and kept as a dead letter."""
    STOPPED = 3
    """Would never have come, and history has a message of it all the same."""
    LEASED = 4
    ACKED = 5
    RETURNED = 6
    RAISED = 7
    GONE = 8
    EVICTED = 9
    REDRIVEN = 10
    RESET = 11


_MOVING = ("acked", "failed", "expired", "evicted", "redriven", "breaker")
_LEASING = ("leased", "returned")


def steps_of(events: DataFrame, columns: Iterable[str], *, leases: bool) -> DataFrame:
    """The steps of all inboxes, in one look at the lake, with `columns` of those that are arrivals
    that their senders' limits let pass. `leases` only matter where mail is evicted."""
    kinds = (*ARRIVALS, *_MOVING, *(_LEASING if leases else ()))
    rows = described(events.where(F.col("kind").isin(*kinds)))
    judged = is_arrival() & (F.col("goal") != "") & ~F.col("kept") & ~F.col("limited")
    step = F.when(judged, _arriving()).otherwise(_moving(leases))
    told = rows.withColumns({"step": step, "sender": F.when(judged, F.col("sender"))})
    return told.where(F.col("step").isNotNull()).select(*columns, "step", _letter().alias("letter"))


def as_steps(arrivals: DataFrame) -> DataFrame:
    """The same of arrivals that another stage let pass."""
    return arrivals.withColumns({"step": _arriving(), "letter": _letter()})


def as_stopped(arrivals: DataFrame) -> DataFrame:
    """The same of arrivals that another stage did not let pass."""
    remembered = arrivals.where(F.col("old_reason").isin("", *DEAD_LETTERED))
    return remembered.withColumns({"step": _step(Step.STOPPED), "letter": _letter()})


def _step(step: Step) -> Column:
    return F.lit(step.value)


def _arriving() -> Column:
    old_reason = F.col("old_reason")
    return (
        F.when(old_reason == "", _step(Step.ARRIVED))
        .when(old_reason.isin(*DEAD_LETTERED), _step(Step.BURIED))
        .otherwise(_step(Step.REJECTED))
    )


def _moving(leases: bool) -> Column:
    kind = F.col("kind")
    raised = (kind == "failed") & (F.col("via") == "handler")
    expired = (kind == "expired") & (F.col("was") == "pending")
    by_hand = F.col("occasion").isin("reset by hand", "untouched for long")
    step = (
        F.when(kind == "acked", _step(Step.ACKED))
        .when(raised, _step(Step.RAISED))
        .when((kind == "failed") | expired, _step(Step.GONE))
        .when(kind == "evicted", _step(Step.EVICTED))
        .when(kind == "redriven", _step(Step.REDRIVEN))
        .when((kind == "breaker") & by_hand, _step(Step.RESET))
    )
    if not leases:
        return step
    return step.when(kind == "leased", _step(Step.LEASED)).when(
        kind == "returned", _step(Step.RETURNED)
    )


def _letter() -> Column:
    # A publish that was refused had no id yet, unless its sender chose one.
    nameless = F.concat(F.lit(" "), F.col("seq").cast("string"))
    return F.when(F.col("publish") == "", nameless).otherwise(F.col("publish"))
