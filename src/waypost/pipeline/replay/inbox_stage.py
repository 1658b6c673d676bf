"""Stage 3, by recipient: decides which arrivals each replayed inbox accepts.

The rows of an inbox are its arrivals and the recorded events of its messages (`InboxEvent`). Those
of one endpoint are consecutive and in order of `seq`; only the current inbox is in memory.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from waypost.pipeline.lake.events import ARRIVALS, TRANSITIONS
from waypost.pipeline.replay.arrivals import is_arrival, overdrawn, with_arrival_columns
from waypost.pipeline.replay.inbox import LAST_ARRIVAL, InboxEvent, ReplayInbox
from waypost.pipeline.replay.keys import KeySet, RelayIndex, partition_by_key, run_bounds, unpack
from waypost.pipeline.replay.rate_stage import RateResult
from waypost.pipeline.replay.settings_timeline import SettingsInForce, SettingsTimeline
from waypost.pipeline.spark.executors import ShippedFunction
from waypost.policy.breakers import Occasion
from waypost.policy.reasons import DEAD_LETTERED

_FOR_EVICTIONS = ("leased", "queued")
"""Kinds that matter only if messages are evicted."""

_EVENT_KINDS = (*(one for one in TRANSITIONS if one not in _FOR_EVICTIONS), "breaker")

# The columns of a row of `ReplayInbox.replay`, after its `seq`.
_NUMBERS = ("at_ms", "event", "size", "tier", "ttl_ms", "due_ms")
_OBJECTS = ("message_key", "sender", "deferred", "budget")
_BUDGET = ("hop_count", "max_hops", "calls", "cycle")
_RESULT = ("sort_key", "at_ms", "sender", "tier", "old_reason")


def inbox_stage(
    rows: DataFrame,
    timeline: SettingsTimeline,
    endpoints: KeySet,
    output_columns: tuple[str, ...],
) -> DataFrame:
    """Return arrivals of `endpoints` with `new_reason`: why they are rejected; empty if accepted.

    `rows` are from `inbox_rows`, with their replayed tiers. With `output_columns`, the result has
    these and all arrivals; without, only arrivals whose decision changed.
    """
    rows = timeline.attach(rows)
    # Only a budget that may be exceeded goes to the executors.
    doubtful = overdrawn(F.least("max_hops", "hops"))
    narrow = rows.select(
        "sort_key",
        "at_ms",
        "event",
        "message_key",
        "sender",
        "deferred",
        "old_reason",
        *output_columns,
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("size", "tier", "ttl_ms", "due_ms")),
        F.when(doubtful, F.struct(*_BUDGET)).alias("budget"),
    )
    result = (*_RESULT, *output_columns)
    reason = StructField("new_reason", StringType())
    schema = StructType([*(narrow.schema[name] for name in result), reason])
    decide = ShippedFunction(
        _decide,
        settings_data=timeline.for_executors(endpoints.first_ids),
        columns=result,
        only_changed=not output_columns,
    )
    # A message to oneself is two rows of one event.
    then_by = ("event",) if timeline.evicts_by_tier() else ()
    decided = partition_by_key(narrow, *then_by).mapInArrow(decide, schema)
    return endpoints.restore(decided, by="endpoint")


def _decide(
    batches: Iterable[pa.RecordBatch],
    settings_data: dict[str, Any],
    columns: tuple[str, ...],
    only_changed: bool,
) -> Iterator[pa.RecordBatch]:
    in_force, relays = SettingsInForce(settings_data), RelayIndex(settings_data["first_ids"])
    inbox, current = None, -1
    for batch in batches:
        key_ids, seqs = unpack(batch.column("sort_key").to_numpy())
        numbers = (batch.column(name).to_numpy().tolist() for name in _NUMBERS)
        objects = (batch.column(name).to_pylist() for name in _OBJECTS)
        rows = zip(seqs.tolist(), *numbers, *objects, strict=True)
        reasons: list[str] = []
        for start, end in pairwise(run_bounds(key_ids)):
            if inbox is None or key_ids[start] != current:
                current = int(key_ids[start])
                inbox = ReplayInbox(in_force, relays.relay_of(current))
            reasons.extend(inbox.replay(islice(rows, end - start)))
        arrived = pa.array(batch.column("event").to_numpy() <= LAST_ARRIVAL)
        arrivals = batch.select(columns).filter(arrived)
        arrivals = arrivals.append_column("new_reason", pa.array(reasons, pa.string()))
        if only_changed:
            arrivals = arrivals.filter(
                pc.not_equal(arrivals.column("old_reason"), arrivals.column("new_reason"))
            )
        yield arrivals


# The rows of an inbox


def inbox_rows(
    events: DataFrame,
    rated: RateResult,
    endpoints: KeySet,
    columns: Iterable[str],
    *,
    with_leases: bool,
    with_redrives: bool,
) -> DataFrame:
    """Return the rows of `endpoints`: `columns`, `sort_key`, `event` and `message_key`, unsorted.

    Leases matter only if messages are evicted. Arrivals that no longer pass the rate limit matter
    only if messages are redriven.
    """
    # Filtered by endpoint first: most events belong to endpoints that are not replayed.
    own_events = endpoints.select(events, by="endpoint")
    recorded = _recorded_rows(own_events, (*columns, "sort_key"), with_leases)
    arrivals = rated.rows.where(F.col("endpoint") != "")
    arrivals = endpoints.select(arrivals, by="endpoint")
    passed = F.col("sender_reason") == ""
    parts = [
        rated.senders.exclude(recorded, by="sender"),
        _with_event(arrivals.where(passed), _arrival_event()).select(*recorded.columns),
    ]
    if with_redrives:
        stored = F.col("old_reason").isin("", *DEAD_LETTERED) & F.col("kept")
        limited = arrivals.where(~passed & stored)
        parts.append(_with_event(limited, _lit(InboxEvent.RATE_LIMITED)).select(*recorded.columns))
    return reduce(DataFrame.unionByName, parts)


def contact_rows(
    passed: DataFrame, restored: DataFrame, endpoints: KeySet, columns: Iterable[str]
) -> DataFrame:
    """Return a row for each time that one of `endpoints` wrote to a sender.

    `passed` are all arrivals within their sender's rate limit that have an endpoint, `restored` the
    restored pairs. The rows have the columns of `inbox_rows`.
    """
    key = ("relay", "seq", "at_ms", "sender", "endpoint")
    both = passed.select(*key).unionByName(restored.select(*key))
    turned = both.select(
        "relay",
        "seq",
        "at_ms",
        F.col("sender").alias("endpoint"),
        F.col("endpoint").alias("message_key"),
        _lit(InboxEvent.CONTACTED).alias("event"),
    )
    rows = endpoints.select(turned, by="endpoint")
    types = passed.schema
    missing = {
        name: F.lit(None).cast(types[name].dataType) for name in columns if name not in rows.columns
    }
    return rows.withColumns(missing).select(*columns, "sort_key", "event", "message_key")


def _recorded_rows(events: DataFrame, columns: Iterable[str], with_leases: bool) -> DataFrame:
    """Return the rows of all inboxes in history, in one pass over `events`.

    Of arrivals, those that passed their sender's rate limit. Only arrivals have a `sender`.
    """
    kinds = (*ARRIVALS, *_EVENT_KINDS, *(_FOR_EVICTIONS if with_leases else ()))
    rows = with_arrival_columns(events.where(F.col("kind").isin(*kinds)))
    decided_here = (
        is_arrival() & (F.col("endpoint") != "") & ~F.col("not_replayed") & ~F.col("limited")
    )
    event = F.when(decided_here, _arrival_event()).otherwise(_message_event(with_leases))
    rows = _with_event(rows, event).withColumn("sender", F.when(decided_here, F.col("sender")))
    return rows.where(F.col("event").isNotNull()).select(*columns, "event", "message_key")


def _with_event(rows: DataFrame, event: Column) -> DataFrame:
    # A rejected publish has no id, unless its sender chose one.
    without_id = F.concat(F.lit(" "), F.col("seq").cast("string"))
    key = F.when(F.col("publish") == "", without_id).otherwise(F.col("publish"))
    return rows.withColumns({"event": event, "message_key": key})


def _lit(event: InboxEvent) -> Column:
    return F.lit(event.value)


def _arrival_event() -> Column:
    old_reason = F.col("old_reason")
    return (
        F.when(old_reason == "", _lit(InboxEvent.ACCEPTED))
        .when(
            old_reason.isin(*DEAD_LETTERED) & F.col("kept"),
            _lit(InboxEvent.DEAD_LETTERED),
        )
        .otherwise(_lit(InboxEvent.REJECTED))
    )


def _message_event(with_leases: bool) -> Column:
    kind, via = F.col("kind"), F.col("via")
    uncounted = F.coalesce("uncounted", F.lit(False))
    failed, returned = kind == "failed", kind == "returned"
    expired = (kind == "expired") & (F.col("was") == "pending")
    removed = (failed & (uncounted | (via == "restart"))) | expired | (kind == "cancelled")
    reset = F.col("occasion").isin(Occasion.RESET.value, Occasion.IDLE.value)
    event = (
        F.when(kind == "acked", _lit(InboxEvent.ACKED))
        .when(returned & uncounted, _lit(InboxEvent.RELEASED))
        .when(returned, _lit(InboxEvent.RETURNED))
        .when(removed, _lit(InboxEvent.REMOVED))
        .when(failed & (via == "handler"), _lit(InboxEvent.HANDLER_FAILED))
        .when(failed, _lit(InboxEvent.DELIVERY_FAILED))
        .when(kind == "evicted", _lit(InboxEvent.EVICTED))
        .when(kind == "redriven", _lit(InboxEvent.REDRIVEN))
        .when((kind == "breaker") & reset, _lit(InboxEvent.BREAKER_RESET))
    )
    if not with_leases:
        return event
    event = event.when(kind == "leased", _lit(InboxEvent.LEASED))
    return event.when(kind == "queued", _lit(InboxEvent.QUEUED))
