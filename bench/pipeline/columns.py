"""The columns of `events` for the engines other than Spark: names, types and defaults.

They repeat `waypost.pipeline.lake.events` without importing Spark, which would add to the measured
memory of these engines.
"""

from typing import Final, NamedTuple

TRANSITIONS: Final = ("leased", "acked", "returned", "failed", "expired", "evicted", "redriven")


class Default(NamedTuple):
    """The value of a column that a line of one of `kinds` omits."""

    kinds: tuple[str, ...]
    value: str | int | bool


LINE: Final = {
    **dict.fromkeys(("kind", "id", "sender", "subject", "endpoint"), "string"),
    **dict.fromkeys(("seq", "at_us", "size"), "bigint"),
    **dict.fromkeys(("part", "parts", "tier", "attempt"), "int"),
    **dict.fromkeys(("reply_to", "parent", "network", "breaker", "reason", "detail"), "string"),
    **dict.fromkeys(("chosen_id", "deferred", "probe"), "boolean"),
    **dict.fromkeys(("rate_count", "rate_limit", "depth", "depth_bytes", "depth_max"), "bigint"),
    **dict.fromkeys(("quota_count", "quota_bytes", "retry_after_ms", "count"), "bigint"),
    **dict.fromkeys(("since_us", "until_us", "not_before_us", "seen_ms"), "bigint"),
    **dict.fromkeys(("via", "was", "before", "after", "occasion", "action"), "string"),
    **dict.fromkeys(("rules", "cause", "settings", "problem"), "string"),
}
"""Fields of a line except the budget, with Spark's names of their types."""

BUDGET: Final = {
    "hop_count": "int",
    "max_hops": "int",
    "ancestor_chain": "strings",
    "ttl": "bigint",
    "call_budget_remaining": "bigint",
}
"""Fields of the budget; `ttl` becomes the column `ttl_ms`."""

_ARRIVAL = ("accepted", "rejected")

DEFAULTS: Final = {
    **dict.fromkeys(("part", "size", "rate_count", "rate_limit"), Default(_ARRIVAL, 0)),
    **dict.fromkeys(("depth", "depth_bytes", "depth_max"), Default(_ARRIVAL, 0)),
    **dict.fromkeys(("quota_count", "quota_bytes"), Default(_ARRIVAL, 0)),
    **dict.fromkeys(("parts", "tier"), Default(_ARRIVAL, 1)),
    **dict.fromkeys(("deferred", "probe"), Default(("accepted",), False)),
    "endpoint": Default(_ARRIVAL, ""),
    "chosen_id": Default(_ARRIVAL, False),
    "network": Default(_ARRIVAL, ""),
    "breaker": Default(_ARRIVAL, "CLOSED"),
    "detail": Default(("rejected",), ""),
    "retry_after_ms": Default(("rejected",), 0),
    "count": Default(("rejected",), 1),
    "since_us": Default(("rejected", "endpoint"), 0),
    "until_us": Default(("leased",), 0),
    "attempt": Default(("leased",), 1),
    "not_before_us": Default(("returned",), 0),
    "was": Default(("expired",), "pending"),
    "problem": Default(("rules", "settings"), ""),
    "reason": Default(("expired",), "time to live is over"),
}
VIA: Final = (Default(("leased", "acked"), "lease"), Default(("failed",), "handler"))
"""`via` has two defaults."""
