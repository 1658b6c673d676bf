"""The third stage: what each inbox would have taken.

Rows of one endpoint come one after another, in order of `seq`: arrivals, and what history tells of
the messages in the mailbox. Executors run this: what has to be unpacked there is imported inside.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from waypost.pipeline.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, is_arrival, overdrawn
from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.loud import by_key
from waypost.pipeline.replay.places import Relays, numbers_of, runs, seqs_of
from waypost.pipeline.start.shipping import unpacked
from waypost.policy.verdicts import DEAD_LETTERED, Reason

# `step`: what a row is to its inbox. The first three are arrivals.
(
    ARRIVED,
    REFUSED,
    BURIED,
    STOPPED,
    LEASED,
    ACKED,
    RETURNED,
    RAISED,
    GONE,
    EVICTED,
    REDRIVEN,
    RESET,
) = range(12)

# What a row is, as one number: its step, and of arrivals their tier, whether their outcome comes
# later, and the place of the reason for which they were refused.
_STEP_BITS, _TIER_BITS, _DEFERRED_BITS = 4, 2, 1
_TIER_AT = _STEP_BITS
_DEFERRED_AT = _TIER_AT + _TIER_BITS
_REASON_AT = _DEFERRED_AT + _DEFERRED_BITS
_REASONS = ("", *(reason.value for reason in Reason))

_MOVING = ("acked", "failed", "expired", "evicted", "redriven", "breaker")
_LEASING = ("leased", "returned")
_BUDGET = ("hop_count", "max_hops", "calls", "cycle")


def judge_inboxes(
    rows: DataFrame, told: dict[str, Any], shown: tuple[str, ...], *, everything: bool
) -> DataFrame:
    """Arrivals of `rows` with their `place`, `at_ms`, `sender`, `tier`, `old_reason`, what is
    `shown`, and `new_reason`: why they would have been refused, or empty. All of them with
    `everything`, else those that would have been decided otherwise.

    `rows` are from the functions below, with their `place` and the `hops` of their regime.
    """
    doubtful = overdrawn(F.least("max_hops", "hops"))
    ready = rows.select(
        *("place", "at_ms", _packed().alias("what"), "letter", "sender"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("size", "ttl_ms")),
        F.when(doubtful, F.struct(*_BUDGET)).alias("budget"),
        *shown,
    )
    kept = ("place", "at_ms", "what", "sender", *shown)
    schema = StructType(
        [*(ready.schema[name] for name in kept), StructField("new_reason", StringType())]
    )
    judge = partial(_judge, told=told, kept=kept, everything=everything)
    judged = by_key(ready).mapInArrow(judge, schema)
    tier, old_reason = _field(_TIER_AT, _TIER_BITS), _field(_REASON_AT, 8)
    return judged.withColumns(
        {
            "tier": tier,
            "old_reason": F.get(F.array(*(F.lit(one) for one in _REASONS)), old_reason),
        }
    ).drop("what")


def _packed() -> Column:
    old_reason = F.array_position(F.array(*(F.lit(one) for one in _REASONS)), F.col("old_reason"))
    return (
        F.col("step")
        + F.shiftleft(F.coalesce("tier", F.lit(0)), _TIER_AT)
        + F.shiftleft(F.coalesce(F.col("deferred").cast("int"), F.lit(0)), _DEFERRED_AT)
        + F.shiftleft(F.coalesce(old_reason.cast("int") - 1, F.lit(0)), _REASON_AT)
    )


def _field(at: int, bits: int) -> Column:
    return F.shiftright("what", at).bitwiseAND(F.lit((1 << bits) - 1))


def steps_of(events: DataFrame, columns: Iterable[str], *, leases: bool) -> DataFrame:
    """What history tells of mailboxes, in one look: arrivals that their senders' limits let pass,
    with `columns`, and what became of messages. `leases` only matter where mail is evicted."""
    kinds = (*ARRIVALS, *_MOVING, *(_LEASING if leases else ()))
    rows = described(events.where(F.col("kind").isin(*kinds)))
    judged = is_arrival() & (F.col("goal") != "") & ~F.col("kept") & ~F.col("limited")
    step = F.when(judged, _arriving()).otherwise(_moving(leases))
    told = rows.withColumns({"step": step, "sender": F.when(judged, F.col("sender"))})
    return told.where(F.col("step").isNotNull()).select(*columns, "step", _letter().alias("letter"))


def as_steps(arrivals: DataFrame) -> DataFrame:
    """The same of arrivals that another stage has described."""
    return arrivals.withColumns({"step": _arriving(), "letter": _letter()})


def as_stopped(arrivals: DataFrame) -> DataFrame:
    """Arrivals that would never have come, of which history has a message all the same."""
    remembered = arrivals.where(F.col("old_reason").isin("", *DEAD_LETTERED))
    return remembered.withColumns({"step": F.lit(STOPPED), "letter": _letter()})


def _arriving() -> Column:
    return (
        F.when(F.col("old_reason") == "", ARRIVED)
        .when(F.col("old_reason").isin(*DEAD_LETTERED), BURIED)
        .otherwise(REFUSED)
    )


def _letter() -> Column:
    # A publish that was refused had no id yet, unless its sender chose one.
    nameless = F.concat(F.lit(" "), F.col("seq").cast("string"))
    return F.when(F.col("publish") == "", nameless).otherwise(F.col("publish"))


def _moving(leases: bool) -> Column:
    kind = F.col("kind")
    by_hand = F.col("occasion").isin("reset by hand", "untouched for long")
    step = (
        F.when(kind == "acked", ACKED)
        .when((kind == "failed") & (F.col("via") == "handler"), RAISED)
        .when((kind == "failed") | ((kind == "expired") & (F.col("was") == "pending")), GONE)
        .when(kind == "evicted", EVICTED)
        .when(kind == "redriven", REDRIVEN)
        .when((kind == "breaker") & by_hand, RESET)
    )
    return (
        step.when(kind == "leased", LEASED).when(kind == "returned", RETURNED) if leases else step
    )


def _judge(
    batches: Iterable[pa.RecordBatch],
    told: dict[str, Any],
    kept: tuple[str, ...],
    everything: bool,
) -> Iterator[pa.RecordBatch]:
    unpacked()
    from waypost.pipeline.replay.inbox import Inbox

    in_force, relays = SettingsInForce(told), Relays(told["keys"])
    inbox, current = None, -1
    for batch in batches:
        numbers = numbers_of(batch.column("place").to_numpy())
        rows = _rows(batch)
        reasons: list[str] = []
        for start, end in pairwise(runs(numbers)):
            if inbox is None or numbers[start] != current:
                current = int(numbers[start])
                inbox = Inbox(in_force, relays.of(current))
            reasons.extend(inbox.follow(islice(rows, end - start)))
        what = batch.column("what").to_numpy()
        arrived = (what & ((1 << _STEP_BITS) - 1)) <= BURIED
        found = pa.array(reasons, pa.string())
        arrivals = batch.select(kept).filter(pa.array(arrived)).append_column("new_reason", found)
        if not everything:
            before = pa.array(_REASONS).take(pa.array(what[arrived] >> _REASON_AT))
            arrivals = arrivals.filter(pc.not_equal(before, found))
        yield arrivals


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """What `Inbox.follow` reads."""
    what = batch.column("what").to_numpy()
    numbers = (
        seqs_of(batch.column("place").to_numpy()),
        batch.column("at_ms").to_numpy(),
        what & ((1 << _STEP_BITS) - 1),
        batch.column("size").to_numpy(),
        (what >> _TIER_AT) & ((1 << _TIER_BITS) - 1),
        batch.column("ttl_ms").to_numpy(),
        (what >> _DEFERRED_AT) & 1,
    )
    texts = (batch.column(name).to_pylist() for name in ("letter", "sender", "budget"))
    return zip(*(column.tolist() for column in numbers), *texts, strict=True)
