"""`messages`: one row for each message in each mailbox, with its whole life.

Law 1  A row is an arrival that left something behind: stored, or kept as a dead letter because its
       budget was overdrawn. Its `day` is the day it arrived, whenever the rest happened.
Law 2  What happens under an id belongs to the latest arrival of that id in that mailbox. Only ids
       that senders choose can come again.
Law 3  The last movement decides the state. A dead letter whose id was stored again is gone: the
       relay has forgotten it, and here it is `purged`.

Movements are added up in numbers only, which Spark can do without sorting them; the texts of the
few that died or expired are joined to them afterwards.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import KEY, elapsed_ms, is_kept, is_rejected

NAME = "messages"

SCHEMA = columns(
    """
    day date, relay string, seq bigint, id string, sender string, subject string,
    endpoint string, part int, parts int, reply_to string, parent string, size bigint,
    hop_count int, tier int, depth bigint, arrived_at timestamp, first_leased_at timestamp,
    finished_at timestamp, state string, reason string, died_at timestamp, died_of string,
    attempts bigint, returns bigint, redrives bigint, wait_ms double, total_ms double
    """
)

OPEN_STATES = ("pending", "leased", "dead")
"""States from which a message can still move."""

# The lowest bits of `last` say which movement it was, the others its seq.
_BITS = 8
_LEASED, _ACKED, _RETURNED, _DIED, _EXPIRED, _PURGED, _REDRIVEN = range(1, 8)
_STATES = {
    _LEASED: "leased",
    _ACKED: "acked",
    _RETURNED: "pending",
    _DIED: "dead",
    _EXPIRED: "expired",
    _PURGED: "purged",
    _REDRIVEN: "pending",
}
_TURN = "turn"


def build(
    arrivals: DataFrame, movements: DataFrame, chosen: DataFrame, *, some_repeat: bool = True
) -> DataFrame:
    """Messages of `arrivals`.

    `movements` are those since the first of them, and `chosen` the arrivals since then that left
    a message behind under an id chosen by its sender. Whoever knows that none of their ids comes
    twice (`repeated`) says so with `some_repeat`, and no row is looked up among them.
    """
    turns = _turns(chosen) if some_repeat else None
    # A turn that is always the same would have Spark shuffle the sums again for the join.
    key = [*KEY, _TURN] if some_repeat else [*KEY]
    kept = _with_turn(arrivals.where(is_kept()), turns, F.col("seq"))
    moved = _with_turn(movements, turns, _arrival_before())
    told = _sums(moved, key).join(_texts(moved, key), on=key, how="left")
    return _closing(kept.join(told, on=key, how="left"))


def repeated(chosen: DataFrame) -> DataFrame:
    """Ids of `chosen` that came again to a mailbox. Few, if any."""
    times = F.count(F.lit(1)).alias("times")
    return chosen.groupBy(*KEY).agg(times).where(F.col("times") > 1).select(*KEY)


def _turns(chosen: DataFrame) -> DataFrame:
    """Ids that came again, with all their arrivals in order."""
    all_of_them = chosen.select(*KEY, F.struct("seq", "at_us").alias("arrival")).join(
        F.broadcast(repeated(chosen)), on=[*KEY], how="left_semi"
    )
    in_order = F.sort_array(F.collect_list("arrival")).alias("turns")
    return F.broadcast(all_of_them.groupBy(*KEY).agg(in_order))


def _with_turn(rows: DataFrame, turns: DataFrame | None, its_own: Column) -> DataFrame:
    """Tell apart what has the same id: by the seq of the arrival, 0 where the id came once."""
    if turns is None:
        none = F.lit(None).cast("array<struct<seq:bigint,at_us:bigint>>")
        return rows.withColumn("turns", none)
    turn = F.when(F.col("turns").isNull(), F.lit(0)).otherwise(its_own)
    return rows.join(turns, on=[*KEY], how="left").withColumn(_TURN, turn.cast("bigint"))


def _arrival_before() -> Column:
    """The seq of the arrival a movement belongs to, among those of its id; null if of none."""
    return F.array_max(F.filter("turns", lambda turn: turn["seq"] < F.col("seq")))["seq"]


def _replaced_us() -> Column:
    """When the same id came again, in µs; null if it did not."""
    return F.array_min(F.filter("turns", lambda turn: turn["seq"] > F.col("seq")))["at_us"]


def _died() -> Column:
    return F.col("kind").isin("failed", "evicted")


def _expired() -> Column:
    return (F.col("kind") == "expired") & (F.col("was") == "pending")


def _code() -> Column:
    kind = F.col("kind")
    return (
        F.when(kind == "leased", _LEASED)
        .when(kind == "acked", _ACKED)
        .when(kind == "returned", _RETURNED)
        .when(_died(), _DIED)
        .when(_expired(), _EXPIRED)
        .when(kind == "expired", _PURGED)
        .otherwise(_REDRIVEN)
    )


def _sums(movements: DataFrame, key: list[str]) -> DataFrame:
    """What the movements of each message come to."""
    kind, at_us, seq = F.col("kind"), F.col("at_us"), F.col("seq")
    return movements.groupBy(*key).agg(
        F.max(seq * _BITS + _code()).alias("last"),
        F.max(at_us).alias("last_us"),
        F.min(F.when(kind == "leased", at_us)).alias("leased_us"),
        F.max(F.when(_died(), at_us)).alias("died_us"),
        F.count_if(kind == "leased").alias("attempts"),
        F.count_if(kind == "returned").alias("returns"),
        F.count_if(kind == "redriven").alias("redrives"),
    )


def _texts(movements: DataFrame, key: list[str]) -> DataFrame:
    """Why messages died or expired, last: by lists, since a greatest text would need sorting."""
    ends = movements.where(_died() | _expired())
    text = F.struct("seq", "reason")
    return ends.groupBy(*key).agg(
        F.array_max(F.collect_list(F.when(_died(), text)))["reason"].alias("death"),
        F.array_max(F.collect_list(F.when(_expired(), text)))["reason"].alias("end"),
    )


def _last_state() -> Column:
    """The state that the last movement left the message in."""
    states = F.array(*(F.lit(_STATES.get(code)) for code in range(_BITS)))
    moved_to = F.get(states, F.pmod(F.col("last"), F.lit(_BITS)).cast("int"))
    return F.coalesce(moved_to, F.when(is_rejected(), "dead").otherwise("pending"))


def _closing(lives: DataFrame) -> DataFrame:
    # Step by step, so that each is found out once for a row.
    at_us, forgotten_us = F.col("at_us"), F.col("forgotten_us")
    left = lives.withColumn("last_state", _last_state())
    seen = left.withColumn("forgotten_us", F.when(F.col("last_state") == "dead", _replaced_us()))
    known = seen.withColumns(
        {
            "state": F.when(forgotten_us.isNotNull(), "purged").otherwise(F.col("last_state")),
            "left_us": F.coalesce(forgotten_us, F.col("last_us"), at_us),
            "died_us": F.coalesce(F.col("died_us"), F.when(is_rejected(), at_us)),
            "died_of": F.coalesce(F.col("death"), F.when(is_rejected(), F.col("detail"))),
        }
    )
    state = F.col("state")
    reason = F.when(state == "expired", F.col("end"))
    ready = {
        "arrived_at": F.timestamp_micros(at_us),
        "first_leased_at": F.timestamp_micros("leased_us"),
        "finished_at": F.when(~state.isin("pending", "leased"), F.timestamp_micros("left_us")),
        "reason": reason.when(state.isin("dead", "purged"), F.col("died_of")),
        "died_at": F.timestamp_micros("died_us"),
        "attempts": F.coalesce("attempts", F.lit(0)),
        "returns": F.coalesce("returns", F.lit(0)),
        "redrives": F.coalesce("redrives", F.lit(0)),
        "wait_ms": elapsed_ms(at_us, F.col("leased_us")),
        "total_ms": F.when(state == "acked", elapsed_ms(at_us, F.col("left_us"))),
    }
    return known.select(*(ready.get(name, F.col(name)).alias(name) for name in SCHEMA.names))
