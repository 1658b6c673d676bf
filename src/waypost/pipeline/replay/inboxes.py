"""The third stage: what each inbox would have taken.

Rows of one endpoint come one after another, in order of `seq`: arrivals, and what history tells of
the messages in the mailbox. Executors run this: what has to be unpacked there is imported inside.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
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

# `step`: what a row is to its inbox.
ARRIVED, REFUSED, LEASED, ACKED, RETURNED, RAISED, GONE, EVICTED, REDRIVEN, RESET = range(10)

# Of arrivals; movements have what they need of it.
_LETTER = ("sender", "size", "tier", "ttl_ms", "deferred", "hop_count", "max_hops", "calls")
_READ = ("at_ms", "step", "letter", *_LETTER, "cycle", "doubtful")
_MOVING = ("acked", "failed", "expired", "evicted", "breaker")
_LEASING = ("leased", "returned")


def judge_inboxes(
    rows: DataFrame, told: dict[str, Any], shown: tuple[str, ...], *, everything: bool
) -> DataFrame:
    """Arrivals of `rows` with `place`, `shown` and `new_reason`: why they would have been refused,
    or empty. All of them with `everything`, else those that would have been decided otherwise.

    `rows` are from the functions below, with their `place` and the `hops` of their regime.
    """
    ready = rows.withColumn("doubtful", overdrawn(F.least("max_hops", "hops")))
    needed = dict.fromkeys(("place", *_READ, "old_reason", *shown))
    in_order = by_key(ready.select(*needed))
    given = ("place", *shown)
    schema = StructType(
        [*(in_order.schema[name] for name in given), StructField("new_reason", StringType())]
    )
    judge = partial(_judge, told=told, given=given, everything=everything)
    return in_order.mapInArrow(judge, schema)


def steps_of(events: DataFrame, columns: Iterable[str], *, leases: bool) -> DataFrame:
    """What history tells of mailboxes, in one look: arrivals that their senders' limits let pass,
    with `columns`, and what became of messages. `leases` only matter where mail is evicted."""
    kinds = (*ARRIVALS, *_MOVING, *(_LEASING if leases else ()))
    rows = described(events.where(F.col("kind").isin(*kinds)))
    judged = is_arrival() & (F.col("goal") != "") & ~F.col("kept") & ~F.col("limited")
    step = F.when(judged, _arriving()).otherwise(_moving(leases))
    told = rows.withColumns({"step": step, "sender": F.when(judged, F.col("sender"))})
    return told.where(F.col("step").isNotNull()).select(
        *columns, "step", _letter().alias("letter")
    )


def as_steps(arrivals: DataFrame) -> DataFrame:
    """The same of arrivals that another stage has described."""
    return arrivals.withColumns({"step": _arriving(), "letter": _letter()})


def _arriving() -> Column:
    return F.when(F.col("old_reason") == "", ARRIVED).otherwise(REFUSED)


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
        .when((kind == "breaker") & by_hand, RESET)
    )
    return (
        step.when(kind == "leased", LEASED).when(kind == "returned", RETURNED) if leases else step
    )


def redriven_of(events: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Dead letters that were put back, each with what its arrival tells of it."""
    back = events.where(F.col("kind") == "redriven").select(
        "relay",
        F.col("seq").alias("back_seq"),
        F.expr("at_us div 1000").alias("back_ms"),
        F.col("endpoint").alias("goal"),
        F.col("id").alias("letter"),
    )
    stored = arrivals.where(F.col("old_reason").isin("", "budget_exceeded")).select(
        "relay", "goal", "seq", F.col("publish").alias("letter"), "sender", "size", "ttl_ms"
    )
    pairs = stored.join(F.broadcast(back), on=["relay", "goal", "letter"], how="inner")
    latest = (
        pairs.where(F.col("seq") < F.col("back_seq"))
        .groupBy("relay", "goal", "letter", "back_seq", "back_ms")
        .agg(F.max_by(F.struct("sender", "size", "ttl_ms"), "seq").alias("arrived"))
    )
    return latest.select(
        "relay",
        F.col("back_seq").alias("seq"),
        F.col("back_ms").alias("at_ms"),
        "goal",
        F.lit(REDRIVEN).alias("step"),
        "letter",
        "arrived.*",
    )


def _judge(
    batches: Iterable[pa.RecordBatch],
    told: dict[str, Any],
    given: tuple[str, ...],
    everything: bool,
) -> Iterator[pa.RecordBatch]:
    unpacked()
    from waypost.pipeline.replay.inbox import Inbox

    in_force, relays = SettingsInForce(told), Relays(told["keys"])
    inbox, current = None, -1
    for batch in batches:
        places = batch.column("place").to_numpy()
        numbers, seqs = numbers_of(places), seqs_of(places)
        reasons: list[str] = []
        for start, end in pairwise(runs(numbers)):
            if inbox is None or numbers[start] != current:
                current = int(numbers[start])
                inbox = Inbox(in_force, relays.of(current))
            run = batch.slice(start, end - start)
            columns = (run.column(name).to_pylist() for name in _READ)
            reasons.extend(inbox.follow(zip(seqs[start:end].tolist(), *columns, strict=True)))
        arrived = pa.array(batch.column("step").to_numpy() <= REFUSED)
        arrivals = batch.filter(arrived).append_column("new_reason", pa.array(reasons, pa.string()))
        if not everything:
            changed = pc.not_equal(arrivals["old_reason"], arrivals["new_reason"])
            arrivals = arrivals.filter(changed)
        yield arrivals.select([*given, "new_reason"])
