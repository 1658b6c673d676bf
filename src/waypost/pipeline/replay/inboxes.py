"""The third stage: what each inbox would have taken.

Rows of one endpoint come one after another, in order of `seq`: arrivals, and what history tells of
the messages in the mailbox. Executors run this: what has to be unpacked there is imported inside.
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

from waypost.pipeline.replay.arrivals import overdrawn
from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.senders import runs
from waypost.pipeline.start.shipping import unpacked

# `step`: what a row is to its inbox.
ARRIVED, REFUSED, LEASED, ACKED, RETURNED, RAISED, GONE, EVICTED, REDRIVEN, RESET = range(10)

# Of arrivals; movements have what they need of it.
_LETTER = ("sender", "size", "tier", "ttl_ms", "deferred", "hop_count", "max_hops", "calls")
_READ = ("seq", "at_ms", "step", "letter", *_LETTER, "cycle", "doubtful")


def judge_inboxes(arrivals: DataFrame, movements: DataFrame, told: dict[str, Any]) -> DataFrame:
    """`arrivals` with `new_reason`: why they would have been refused, or empty.

    They have passed their sender's limit and have a goal. `movements` are from `movements_of`.
    """
    keys = ("relay", "goal")
    rows = arrivals.withColumns(
        {
            "step": F.when(F.col("old_reason") == "", ARRIVED).otherwise(REFUSED),
            # A publish that was refused had no id yet, unless its sender chose one.
            "letter": F.when(
                F.col("publish") == "", F.concat(F.lit(" "), F.col("seq").cast("string"))
            ).otherwise(F.col("publish")),
            "doubtful": overdrawn(F.least("max_hops", "hops")),
        }
    ).drop("hops")
    both = rows.unionByName(movements, allowMissingColumns=True)
    in_order = both.repartition(*keys).sortWithinPartitions(*keys, "seq")
    schema = StructType([*both.schema.fields, StructField("new_reason", StringType())])
    return in_order.mapInArrow(partial(_judge, told=told), schema)


def movements_of(events: DataFrame, *, leases: bool) -> DataFrame:
    """What history tells of messages in mailboxes; `leases` only matter where mail is evicted."""
    step = _step(leases)
    return events.select(
        "relay",
        "seq",
        F.expr("at_us div 1000").alias("at_ms"),
        F.col("endpoint").alias("goal"),
        step.alias("step"),
        F.col("id").alias("letter"),
    ).where(F.col("step").isNotNull())


def _step(leases: bool) -> Column:
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
    inbox, current = Inbox(in_force, "", ""), ("", "")
    for batch in batches:
        reasons: list[str] = []
        for start, end in pairwise(runs(batch, "relay", "goal")):
            key = (batch.column("relay")[start].as_py(), batch.column("goal")[start].as_py())
            if key != current:
                inbox, current = Inbox(in_force, *key), key
            run = batch.slice(start, end - start)
            rows = zip(*(run.column(name).to_pylist() for name in _READ), strict=True)
            reasons.extend(inbox.follow(rows))
        arrived = np.asarray(batch.column("step").to_numpy()) <= REFUSED
        taken = batch.filter(pa.array(arrived))
        yield taken.append_column("new_reason", pa.array(reasons, type=pa.string()))
