"""`events`: one row for each line of the journal, header columns only.

`LINE` is how Spark reads a line, `EVENTS` what the lake holds. What a line leaves out because it
has its default is filled in here, so that nobody downstream has to know the defaults. Payloads are
in neither: they are skipped while parsing.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.schemas import columns

CORRUPT = "corrupt_line"

# Fields of every kind of event, with the types they have in a line.
LINE = columns(
    f"""
    kind string, seq bigint, at_us bigint,
    id string, sender string, subject string, endpoint string, part int, parts int,
    reply_to string, parent string, chosen_id boolean, size bigint,
    budget budget,
    tier int, rate_count bigint, rate_limit bigint, depth bigint, depth_max bigint,
    quota_count bigint, quota_bytes bigint, breaker string, deferred boolean, probe boolean,
    reason string, detail string, retry_after_ms bigint, count bigint, since_us bigint,
    until_us bigint, via string, attempt int, not_before_us bigint, was string,
    before string, after string, occasion string, action string, seen_ms bigint,
    rules string, cause string, settings string, problem string,
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
    id string, sender string, subject string, endpoint string, part int, parts int,
    reply_to string, parent string, chosen_id boolean, size bigint,
    hop_count int, max_hops int, ancestor_chain array<string>, ttl_ms bigint,
    call_budget_remaining bigint,
    tier int, rate_count bigint, rate_limit bigint, depth bigint, depth_max bigint,
    quota_count bigint, quota_bytes bigint, breaker string, deferred boolean, probe boolean,
    reason string, detail string, retry_after_ms bigint, count bigint, since_us bigint,
    until_us bigint, via string, attempt int, not_before_us bigint, was string,
    before string, after string, occasion string, action string, seen_ms bigint,
    rules string, cause string, settings string, problem string,
    day date
    """
)

ARRIVALS = ("accepted", "rejected")
MOVEMENTS = ("leased", "acked", "returned", "failed", "expired", "evicted", "redriven")


def from_lines(lines: DataFrame) -> DataFrame:
    """`events` of parsed lines that also have `relay` and `segment`."""
    of = F.col("kind")
    arrival = of.isin(*ARRIVALS)
    defaults: dict[str, tuple[Column, object]] = {
        "endpoint": (arrival, ""),
        "part": (arrival, 0),
        "parts": (arrival, 1),
        "chosen_id": (arrival, False),
        "size": (arrival, 0),
        "tier": (arrival, 1),
        "rate_count": (arrival, 0),
        "rate_limit": (arrival, 0),
        "depth": (arrival, 0),
        "depth_max": (arrival, 0),
        "quota_count": (arrival, 0),
        "quota_bytes": (arrival, 0),
        "breaker": (arrival, "CLOSED"),
        "deferred": (of == "accepted", False),
        "probe": (of == "accepted", False),
        "detail": (of == "rejected", ""),
        "retry_after_ms": (of == "rejected", 0),
        "count": (of == "rejected", 1),
        "since_us": (of.isin("rejected", "endpoint"), 0),
        "until_us": (of == "leased", 0),
        "attempt": (of == "leased", 1),
        "not_before_us": (of == "returned", 0),
        "was": (of == "expired", "pending"),
        "problem": (of.isin("rules", "settings"), ""),
    }
    filled = {name: _filled(name, *default) for name, default in defaults.items()}
    via = F.when(of.isin("leased", "acked"), "lease").when(of == "failed", "handler")
    reason = F.when(of == "expired", "time to live is over")
    renamed = {
        "hop_count": F.col("budget.hop_count"),
        "max_hops": F.col("budget.max_hops"),
        "ancestor_chain": F.col("budget.ancestor_chain"),
        "ttl_ms": F.col("budget.ttl"),
        "call_budget_remaining": F.col("budget.call_budget_remaining"),
        "via": F.coalesce(F.col("via"), via),
        "reason": F.coalesce(F.col("reason"), reason),
        "day": F.to_date(F.timestamp_micros(F.col("at_us"))),
    }
    ready = {**filled, **renamed}
    return lines.select(*(ready.get(name, F.col(name)).alias(name) for name in EVENTS.fieldNames()))


def _filled(name: str, where: Column, value: object) -> Column:
    return F.coalesce(F.col(name), F.when(where, F.lit(value))).alias(name)
