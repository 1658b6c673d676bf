"""`events`: one row for each event of the journal, header columns only.

`LINE` is the schema of a line, `EVENTS` that of the lake. A field that a line omits because it has
its default is filled in here, as `wire.events` defines it, so that no table has to know defaults.
Payloads are in neither: the parser skips them.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.wire.events import omitted_defaults

CORRUPT = "corrupt_line"

AT_US_END = 253_402_300_800_000_000
"""The first instant of the year 10000: no event has a time before 1970 or from then on."""

# Fields of every kind of event, with the types they have in a line.
LINE = columns(
    f"""
    kind string, seq bigint, at_us bigint,
    id string, ids array<string>, thread string, sender string, subject string, endpoint string,
    part int, parts int,
    reply_to string, parent string, answer boolean, due_us bigint, chosen_id boolean,
    network string,
    size bigint, budget budget,
    tier int, rate_count bigint, rate_limit bigint,
    depth bigint, depth_bytes bigint, depth_max bigint,
    quota_count bigint, quota_bytes bigint, breaker string, deferred boolean, probe boolean,
    reason string, detail string, retry_after_ms bigint, count bigint, since_us bigint,
    kept boolean, until_us bigint, via string, attempt int, not_before_us bigint,
    uncounted boolean, extended boolean, was string,
    before string, after string, occasion string, action string, seen_ms bigint,
    rules string, cause string, settings string, problem string, breakers_count string,
    origin int, origin_seq bigint, partition int,
    {CORRUPT} string
    """,
    budget=columns(
        "hop_count int, max_hops int, ancestor_chain array<string>, ttl bigint,"
        "call_budget_remaining bigint"
    ),
)

# `day` is the partition: the UTC day of `at_us`.
EVENTS = columns(
    """
    relay string, segment bigint, seq bigint, at_us bigint, kind string,
    id string, thread string, sender string, subject string, endpoint string, part int, parts int,
    reply_to string, parent string, answer boolean, due_us bigint, chosen_id boolean,
    network string,
    size bigint, hop_count int, max_hops int, ancestor_chain array<string>, ttl_ms bigint,
    call_budget_remaining bigint,
    tier int, rate_count bigint, rate_limit bigint,
    depth bigint, depth_bytes bigint, depth_max bigint,
    quota_count bigint, quota_bytes bigint, breaker string, deferred boolean, probe boolean,
    reason string, detail string, retry_after_ms bigint, count bigint, since_us bigint,
    kept boolean, until_us bigint, via string, attempt int, not_before_us bigint,
    uncounted boolean, extended boolean, was string,
    before string, after string, occasion string, action string, seen_ms bigint,
    rules string, cause string, settings string, problem string, breakers_count string,
    origin int, origin_seq bigint, partition int,
    day date
    """
)

ARRIVALS = ("accepted", "rejected")
TRANSITIONS = (
    "leased",
    "acked",
    "returned",
    "failed",
    "expired",
    "evicted",
    "redriven",
    "queued",
    "cancelled",
)


DEFAULTS = [
    (name, kinds, value)
    for name, kinds, value in omitted_defaults()
    if name in EVENTS.fieldNames() and name != "seq"
]
"""Values that lines omit: column, the kinds of events that have it, and its default."""


def event_count() -> Column:
    """Return how many events a line stands for."""
    return F.greatest(F.coalesce(F.size("ids"), F.lit(1)), F.lit(1))


def split_lines(lines: DataFrame) -> DataFrame:
    """Return a row for each event of parsed lines; `seq` of a line is that of its last event."""
    names = [name for name in lines.columns if name not in ("seq", "id", "ids")]
    each = lines.select(
        *names,
        "seq",
        event_count().alias("events"),
        F.posexplode(F.coalesce("ids", F.array("id"))).alias("at", "id"),
    )
    return each.withColumn("seq", F.col("seq") - F.col("events") + F.col("at") + 1)


def from_lines(lines: DataFrame) -> DataFrame:
    """Return `events` for parsed lines, which also have `relay` and `segment`."""
    lines = split_lines(lines)
    filled: dict[str, Column] = {}
    for name, kinds, value in DEFAULTS:
        known = filled.get(name, F.col(name))
        filled[name] = F.coalesce(known, F.when(F.col("kind").isin(*kinds), F.lit(value)))
    renamed = {
        "hop_count": F.col("budget.hop_count"),
        "max_hops": F.col("budget.max_hops"),
        "ancestor_chain": F.col("budget.ancestor_chain"),
        "ttl_ms": F.col("budget.ttl"),
        "call_budget_remaining": F.col("budget.call_budget_remaining"),
        "day": F.to_date(F.timestamp_micros(F.col("at_us"))),
    }
    ready = {**filled, **renamed}
    return lines.select(*(ready.get(name, F.col(name)).alias(name) for name in EVENTS.fieldNames()))


def is_answer() -> Column:
    """Return whether an arrival is an answer to its parent; null in lakes of earlier versions."""
    return F.coalesce("answer", F.lit(False))


def is_delivery() -> Column:
    """Return whether an event is a delivery, and not the extension of a lease."""
    return (F.col("kind") == "leased") & ~F.coalesce("extended", F.lit(False))


def thread_of() -> Column:
    """Return the thread of an arrival: a line omits it if it is the message's own id."""
    return F.coalesce(F.nullif(F.col("thread"), F.lit("")), F.col("id"))
