"""The third stage: what each inbox would have taken.

Rows of one endpoint, or of one span of its time, come one after another, in order of `seq`:
arrivals, and what history tells of the messages in the mailbox. Executors run this: what has to be
unpacked there is imported inside.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from waypost.pipeline.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, overdrawn
from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.senders import runs
from waypost.pipeline.replay.settled import judged_at_endpoint
from waypost.pipeline.start.shipping import unpacked

# `step`: what a row is to its inbox.
ARRIVED, REFUSED, LEASED, ACKED, RETURNED, RAISED, GONE, EVICTED, REDRIVEN, RESET = range(10)

# Of arrivals; movements have what they need of it.
_LETTER = ("sender", "size", "tier", "ttl_ms", "deferred", "hop_count", "max_hops", "calls")
_MOVING = ("acked", "failed", "expired", "evicted", "breaker")
_LEASING = ("leased", "returned")
_KEYS = ("relay", "goal", "span")
_READ = ("seq", "at_ms", "step", "letter", *_LETTER, "cycle", "doubtful")


def judge_inboxes(rows: DataFrame, told: dict[str, Any]) -> DataFrame:
    """The arrivals of `rows` with `new_reason`: why they would have been refused, or empty.

    `rows` are from the functions below, with the `hops` of their regime and a `span`: what has the
    same goal and span is replayed together, from an empty inbox.
    """
    ready = rows.withColumn("doubtful", overdrawn(F.least("max_hops", "hops"))).drop("hops")
    in_order = ready.repartition(*_KEYS).sortWithinPartitions(*_KEYS, "seq")
    schema = StructType([*ready.schema.fields, StructField("new_reason", StringType())])
    return in_order.mapInArrow(partial(_judge, told=told), schema)


def steps_of(events: DataFrame, columns: Iterable[str], *, leases: bool) -> DataFrame:
    """What history tells of mailboxes, in one look: arrivals that their senders' limits let pass,
    with `columns`, and what became of messages. `leases` only matter where mail is evicted."""
    kind = F.col("kind")
    step = F.when(judged_at_endpoint(), _arriving(F.col("old_reason"))).otherwise(_moving(leases))
    kinds = (*ARRIVALS, *_MOVING, *(_LEASING if leases else ()))
    rows = described(events.where(kind.isin(*kinds))).withColumn("step", step)
    told = rows.where(F.col("step").isNotNull())
    return told.select(*columns, "step", _letter().alias("letter"))


def as_steps(arrivals: DataFrame) -> DataFrame:
    """The same of arrivals that another stage has described."""
    step = _arriving(F.col("old_reason"))
    return arrivals.withColumns({"step": step, "letter": _letter()})


def _arriving(old_reason: Column) -> Column:
    return F.when(old_reason == "", ARRIVED).otherwise(REFUSED)


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


def _judge(batches: Iterable[pa.RecordBatch], told: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    unpacked()
    from waypost.pipeline.replay.inbox import Inbox

    in_force = SettingsInForce(told)
    inbox, current = Inbox(in_force, "", ""), ("", "", 0)
    for batch in batches:
        reasons: list[str] = []
        for start, end in pairwise(runs(batch, *_KEYS)):
            relay, goal, _ = key = tuple(batch.column(name)[start].as_py() for name in _KEYS)
            if key != current:
                inbox, current = Inbox(in_force, relay, goal), key
            run = batch.slice(start, end - start)
            rows = zip(*(run.column(name).to_pylist() for name in _READ), strict=True)
            reasons.extend(inbox.follow(rows))
        arrived = np.asarray(batch.column("step").to_numpy()) <= REFUSED
        taken = batch.filter(pa.array(arrived))
        yield taken.append_column("new_reason", pa.array(reasons, type=pa.string()))
