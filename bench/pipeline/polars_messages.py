"""The table `messages` in Polars.

Events are aggregated by message as numbers. Texts are joined only for messages that were
dead-lettered or expired.
"""

import polars as pl

KEY = ["relay", "endpoint", "id"]
_TURN = [*KEY, "turn"]
_CODES = {
    **{"leased": 1, "acked": 2, "returned": 3, "redriven": 3, "queued": 3},
    **{"failed": 4, "evicted": 4, "cancelled": 7},
}
_EXPIRED, _PURGED = 5, 6
_STATES = {
    1: "leased",
    2: "acked",
    3: "pending",
    4: "dead",
    _EXPIRED: "expired",
    _PURGED: "purged",
    7: "cancelled",
}
_COLUMNS = (
    "day",
    "relay",
    "seq",
    "id",
    "sender",
    "subject",
    "endpoint",
    "part",
    "parts",
    "reply_to",
    "parent",
    "thread",
    "answer",
    "size",
    "hop_count",
    "tier",
    "depth",
    "arrived_at",
    "due_at",
    "first_leased_at",
    "finished_at",
    "state",
    "reason",
    "died_at",
    "died_of",
    "attempts",
    "returns",
    "redrives",
    "wait_ms",
    "total_ms",
)


def messages(arrivals: pl.LazyFrame, transitions: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each message in each mailbox."""
    rejected = pl.col("kind") == "rejected"
    stored = ~rejected & (pl.col("endpoint") != "")
    dead = rejected & (pl.col("reason") == "budget_exceeded") & pl.col("kept")
    stored_arrivals = arrivals.filter(stored | dead)
    repeated = _repeated(stored_arrivals)
    ids = repeated.select(KEY).unique()
    events = pl.concat(
        [
            transitions.join(ids, on=KEY, how="anti").with_columns(_no_turn()),
            transitions.join(ids, on=KEY, how="semi")
            .sort("seq")
            .join_asof(
                repeated.select(*KEY, "seq", "turn").sort("seq"),
                on="seq",
                by=KEY,
                check_sortedness=False,
            ),
        ],
        how="diagonal",
    )
    turns = repeated.select(*KEY, "seq", "turn", "replaced_us")
    with_turn = stored_arrivals.join(turns, on=[*KEY, "seq"], how="left").with_columns(
        pl.col("turn").fill_null(0)
    )
    with_sums = with_turn.join(_sums(events), on=_TURN, how="left")
    return _with_outcome(with_sums.join(_texts(events), on=_TURN, how="left"))


def _no_turn() -> pl.Expr:
    return pl.lit(0, dtype=pl.Int64).alias("turn")


def _repeated(stored_arrivals: pl.LazyFrame) -> pl.LazyFrame:
    """Return the arrivals of ids that occur more than once; only ids chosen by senders can."""
    chosen = stored_arrivals.filter(pl.col("chosen_id")).select(*KEY, "seq", "at_us").sort("seq")
    return (
        chosen.with_columns(
            pl.len().over(KEY).alias("times"),
            pl.col("at_us").shift(-1).over(KEY).alias("replaced_us"),
            pl.col("seq").alias("turn"),
        )
        .filter(pl.col("times") > 1)
        .drop("times", "at_us")
    )


def _died() -> pl.Expr:
    return pl.col("kind").is_in(["failed", "evicted"])


def _expired() -> pl.Expr:
    return (pl.col("kind") == "expired") & (pl.col("was") == "pending")


def _sums(events: pl.LazyFrame) -> pl.LazyFrame:
    kind, at_us = pl.col("kind"), pl.col("at_us")
    code = (
        pl.when(_expired())
        .then(_EXPIRED)
        .otherwise(kind.replace_strict(_CODES, default=_PURGED, return_dtype=pl.Int64))
    )
    return events.group_by(_TURN).agg(
        (pl.col("seq") * 8 + code).max().alias("last"),
        at_us.max().alias("last_us"),
        at_us.filter(kind == "leased").min().alias("leased_us"),
        at_us.filter(_died()).max().alias("died_us"),
        ((kind == "leased") & ~pl.col("extended")).sum().alias("attempts"),
        (kind == "returned").sum().alias("returns"),
        (kind == "redriven").sum().alias("redrives"),
    )


def _texts(events: pl.LazyFrame) -> pl.LazyFrame:
    ends = events.filter(_died() | _expired()).sort("seq")
    return ends.group_by(_TURN).agg(
        pl.col("reason").filter(_died()).last().alias("death"),
        pl.col("reason").filter(_expired()).last().alias("end"),
    )


def _with_outcome(messages: pl.LazyFrame) -> pl.LazyFrame:
    rejected, at_us = pl.col("kind") == "rejected", pl.col("at_us")
    initial_state = pl.when(rejected).then(pl.lit("dead")).otherwise(pl.lit("pending"))
    code = pl.col("last") % 8
    last_state = code.replace_strict(_STATES, default=None, return_dtype=pl.String)
    last_state = pl.coalesce(last_state, initial_state).alias("last_state")
    known = messages.with_columns(last_state).with_columns(
        pl.when(pl.col("last_state") == "dead").then("replaced_us").alias("forgotten_us"),
        pl.coalesce("died_us", pl.when(rejected).then(at_us)).alias("died_us"),
        pl.coalesce("death", pl.when(rejected).then("detail")).alias("died_of"),
    )
    gone, due_us = pl.col("forgotten_us").is_not_null(), pl.col("due_us")
    waits = (pl.col("last_state") == "pending") & (
        due_us // 1000 > pl.coalesce("last_us", at_us) // 1000
    )
    state = (
        pl.when(gone)
        .then(pl.lit("purged"))
        .when(waits)
        .then(pl.lit("scheduled"))
        .otherwise("last_state")
    )
    ready_us = pl.max_horizontal(at_us, due_us)
    known = known.with_columns(
        state.alias("state"), pl.coalesce("forgotten_us", "last_us", at_us).alias("left_us")
    )
    finished = ~pl.col("state").is_in(["scheduled", "pending", "leased"])
    reason = pl.when(pl.col("state") == "expired").then("end")
    return known.with_columns(
        pl.when(pl.col("thread") == "").then("id").otherwise("thread").alias("thread"),
        _at(at_us).alias("arrived_at"),
        pl.when(due_us > 0).then(_at(due_us)).alias("due_at"),
        _at(pl.col("leased_us")).alias("first_leased_at"),
        pl.when(finished).then(_at(pl.col("left_us"))).alias("finished_at"),
        reason.when(pl.col("state").is_in(["dead", "purged"])).then("died_of").alias("reason"),
        _at(pl.col("died_us")).alias("died_at"),
        pl.col("attempts", "returns", "redrives").fill_null(0).cast(pl.Int64),
        ((pl.col("leased_us") - ready_us) / 1000).alias("wait_ms"),
        pl.when(pl.col("state") == "acked")
        .then((pl.col("left_us") - ready_us) / 1000)
        .alias("total_ms"),
    ).select(_COLUMNS)


def _at(instant_us: pl.Expr) -> pl.Expr:
    return pl.from_epoch(instant_us, time_unit="us")
