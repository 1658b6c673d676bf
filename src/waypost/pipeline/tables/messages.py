"""`messages`: one row for each message in each mailbox, from arrival to final state.

Rule 1  A row is an arrival that left a message: stored, or dead-lettered because its budget was
        exceeded. Its `day` is the day of arrival, whenever later events happened.
Rule 2  Events of an id belong to the latest arrival of that id in that mailbox. Only ids that
        senders choose can repeat, perhaps on a day that is not read: events before the first
        arrival that is read belong to that message.
Rule 3  The last transition decides the state. A dead letter whose id was stored again is `purged`:
        the relay no longer keeps it.
Rule 4  The times of a scheduled message count from when it was due.

Transitions are aggregated as numbers only, which Spark does by hash, without sorting. The reason
texts of the few messages that died or expired are joined afterwards.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import is_answer, is_delivery, thread_of
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import KEY, elapsed_ms, is_rejected, leaves_message

NAME = "messages"

SCHEMA = columns(
    """
    day date, relay string, seq bigint, id string, sender string, subject string,
    endpoint string, part int, parts int, reply_to string, parent string, thread string,
    answer boolean, size bigint,
    hop_count int, tier int, depth bigint, arrived_at timestamp, due_at timestamp,
    first_leased_at timestamp,
    finished_at timestamp, state string, reason string, died_at timestamp, died_of string,
    attempts bigint, returns bigint, redrives bigint, wait_ms double, total_ms double
    """
)

OPEN_STATES = ("scheduled", "pending", "leased", "dead")
"""States with possible further transitions."""

# States by number: Spark aggregates numbers by hash, and would sort texts.
_STATES = ("pending", "leased", "acked", "dead", "expired", "purged", "cancelled")
_PENDING, _LEASED, _ACKED, _DEAD, _EXPIRED, _PURGED, _CANCELLED = range(len(_STATES))
_ARRIVAL_SEQ = "arrival_seq"


def build(
    arrivals: DataFrame, transitions: DataFrame, chosen: DataFrame, *, some_repeat: bool = True
) -> DataFrame:
    """Return the messages of `arrivals`.

    `transitions` are those since the first arrival, and `chosen` the arrivals since then that left
    a message under an id chosen by its sender. If none of these ids repeats (`ids_repeat`), pass
    `some_repeat=False` to skip looking them up.
    """
    repeats = _arrivals_of_repeated_ids(chosen, transitions) if some_repeat else None
    # A constant key column would make Spark shuffle the aggregates again for the join.
    key = [*KEY, _ARRIVAL_SEQ] if some_repeat else [*KEY]
    messages = _with_arrival_seq(arrivals.where(leaves_message()), repeats, F.col("seq"))
    moved = _with_arrival_seq(transitions, repeats, _seq_of_arrival_before())
    totals = _aggregates(moved, key).join(_reasons(moved, key), on=key, how="left")
    return _closing(messages.join(totals, on=key, how="left"))


def ids_repeat(chosen: DataFrame, transitions: DataFrame, *, is_whole: bool) -> bool:
    """Return whether an id of `chosen` repeats; `is_whole` if no day before these has events.

    The transitions are read only if there are ids to look for, and earlier days to repeat from.
    """
    times = chosen.groupBy(*KEY).agg(F.count(F.lit(1)).alias("times"))
    most = times.agg(F.max("times").alias("most")).collect()[0].most or 0
    if most != 1 or is_whole:
        return bool(most > 1)
    return not _repeated(chosen, transitions).isEmpty()


def _repeated(chosen: DataFrame, transitions: DataFrame) -> DataFrame:
    """Return the ids of `chosen` with another message before the last. Few, if any.

    It is among `chosen`, or it has transitions before the first of these arrivals.
    """
    none, seq = F.lit(None).cast("bigint"), F.col("seq")
    arrived = chosen.select(*KEY, seq.alias("arrived_seq"), none.alias("moved_seq"))
    moved = transitions.select(*KEY, none.alias("arrived_seq"), seq.alias("moved_seq"))
    # Not a join: most transitions of a message are added up before the shuffle.
    seen = arrived.unionByName(moved).groupBy(*KEY)
    firsts = seen.agg(
        F.count("arrived_seq").alias("times"),
        F.min("arrived_seq").alias("first_arrival"),
        F.min("moved_seq").alias("first_move"),
    )
    repeats = (F.col("times") > 1) | (F.col("first_move") < F.col("first_arrival"))
    return firsts.where(repeats).select(*KEY)


def _arrivals_of_repeated_ids(chosen: DataFrame, transitions: DataFrame) -> DataFrame:
    """Return the repeated ids, each with all its arrivals in order."""
    arrivals = chosen.select(*KEY, F.struct("seq", "at_us").alias("arrival")).join(
        F.broadcast(_repeated(chosen, transitions)), on=[*KEY], how="left_semi"
    )
    in_order = F.sort_array(F.collect_list("arrival")).alias("repeats")
    return F.broadcast(arrivals.groupBy(*KEY).agg(in_order))


def _with_arrival_seq(rows: DataFrame, repeats: DataFrame | None, own_seq: Column) -> DataFrame:
    """Distinguish the messages of one id by the seq of their arrival; 0 for an id used once."""
    if repeats is None:
        none = F.lit(None).cast("array<struct<seq:bigint,at_us:bigint>>")
        return rows.withColumn("repeats", none)
    seq = F.when(F.col("repeats").isNull(), F.lit(0)).otherwise(own_seq)
    return rows.join(repeats, on=[*KEY], how="left").withColumn(_ARRIVAL_SEQ, seq.cast("bigint"))


def _seq_of_arrival_before() -> Column:
    """Return the seq of the arrival that a transition belongs to; null if there is none."""
    return F.array_max(F.filter("repeats", lambda one: one["seq"] < F.col("seq")))["seq"]


def _replaced_us() -> Column:
    """Return when the same id arrived again, in µs; null if it did not."""
    return F.array_min(F.filter("repeats", lambda one: one["seq"] > F.col("seq")))["at_us"]


def _died() -> Column:
    return F.col("kind").isin("failed", "evicted")


def _expired() -> Column:
    return (F.col("kind") == "expired") & (F.col("was") == "pending")


def _state_after() -> Column:
    """Return the number of the state that a transition leads to."""
    kind = F.col("kind")
    return (
        F.when(kind == "leased", _LEASED)
        .when(kind == "acked", _ACKED)
        .when(_died(), _DEAD)
        .when(_expired(), _EXPIRED)
        .when(kind == "expired", _PURGED)
        .when(kind == "cancelled", _CANCELLED)
        .otherwise(_PENDING)  # returned, redriven, queued
    )


def _aggregates(transitions: DataFrame, key: list[str]) -> DataFrame:
    """Return the last state, the times and the counts of each message."""
    kind, at_us = F.col("kind"), F.col("at_us")
    return transitions.groupBy(*key).agg(
        F.max_by(_state_after(), "seq").alias("last_state"),
        F.max(at_us).alias("last_us"),
        F.min(F.when(kind == "leased", at_us)).alias("leased_us"),
        F.max(F.when(_died(), at_us)).alias("died_us"),
        F.count_if(is_delivery()).alias("attempts"),
        F.count_if(kind == "returned").alias("returns"),
        F.count_if(kind == "redriven").alias("redrives"),
    )


def _reasons(transitions: DataFrame, key: list[str]) -> DataFrame:
    """Return the last reason to die or expire: from lists, because `max_by` of a text sorts."""
    ends = transitions.where(_died() | _expired())
    reason = F.struct("seq", "reason")
    return ends.groupBy(*key).agg(
        F.array_max(F.collect_list(F.when(_died(), reason)))["reason"].alias("death_reason"),
        F.array_max(F.collect_list(F.when(_expired(), reason)))["reason"].alias("expiry_reason"),
    )


def _last_state() -> Column:
    """Return the state after the last transition, or after the arrival if there was none."""
    names = F.array(*(F.lit(state) for state in _STATES))
    moved_to = F.get(names, F.col("last_state"))
    return F.coalesce(moved_to, F.when(is_rejected(), "dead").otherwise("pending"))


def _or_scheduled(due_us: Column) -> Column:
    """Return the last state; a pending message that was not due then is scheduled."""
    since_us, state = F.coalesce("last_us", "at_us"), F.col("last_state")
    ahead = F.floor(due_us / 1000) > F.floor(since_us / 1000)
    return F.when((state == "pending") & ahead, "scheduled").otherwise(state)


def _closing(messages: DataFrame) -> DataFrame:
    # In steps, so that Spark computes each expression once for a row.
    at_us, purged_us = F.col("at_us"), F.col("purged_us")
    due_us = F.coalesce("due_us", F.lit(0))  # null in lakes of earlier versions
    last = messages.withColumn("last_state", _last_state())
    last = last.withColumns(
        {"last_state": _or_scheduled(due_us), "ready_us": F.greatest(at_us, due_us)}
    )
    purged = last.withColumn("purged_us", F.when(F.col("last_state") == "dead", _replaced_us()))
    known = purged.withColumns(
        {
            "state": F.when(purged_us.isNotNull(), "purged").otherwise(F.col("last_state")),
            "left_us": F.coalesce(purged_us, F.col("last_us"), at_us),
            "died_us": F.coalesce(F.col("died_us"), F.when(is_rejected(), at_us)),
            "died_of": F.coalesce(F.col("death_reason"), F.when(is_rejected(), F.col("detail"))),
        }
    )
    state = F.col("state")
    reason = F.when(state == "expired", F.col("expiry_reason"))
    ready = {
        "thread": thread_of(),
        "answer": is_answer(),
        "arrived_at": F.timestamp_micros(at_us),
        "due_at": F.when(due_us > 0, F.timestamp_micros(due_us)),
        "first_leased_at": F.timestamp_micros("leased_us"),
        "finished_at": F.when(
            ~state.isin("scheduled", "pending", "leased"), F.timestamp_micros("left_us")
        ),
        "reason": reason.when(state.isin("dead", "purged"), F.col("died_of")),
        "died_at": F.timestamp_micros("died_us"),
        "attempts": F.coalesce("attempts", F.lit(0)),
        "returns": F.coalesce("returns", F.lit(0)),
        "redrives": F.coalesce("redrives", F.lit(0)),
        "wait_ms": elapsed_ms(F.col("ready_us"), F.col("leased_us")),
        "total_ms": F.when(state == "acked", elapsed_ms(F.col("ready_us"), F.col("left_us"))),
    }
    return known.select(*(ready.get(name, F.col(name)).alias(name) for name in SCHEMA.names))
