"""The columns of `events` for the engines other than Spark: names, types and defaults.

They repeat `waypost.pipeline.lake.events` without importing Spark, which would add to the measured
memory of these engines. A test compares the two.
"""

from typing import Final, NamedTuple, get_args

from waypost.wire.events import MailboxEvent, omitted_defaults

TRANSITIONS: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(MailboxEvent))


class Default(NamedTuple):
    """The value of a column that a line of one of `kinds` omits."""

    kinds: tuple[str, ...]
    value: str | int


LINE: Final = {
    **dict.fromkeys(("kind", "id", "thread", "sender", "subject", "endpoint"), "string"),
    **dict.fromkeys(("seq", "at_us", "size"), "bigint"),
    **dict.fromkeys(("part", "parts", "tier", "attempt"), "int"),
    **dict.fromkeys(("reply_to", "parent", "network", "breaker", "reason", "detail"), "string"),
    **dict.fromkeys(("answer", "chosen_id", "deferred", "probe"), "boolean"),
    **dict.fromkeys(("kept", "uncounted", "extended"), "boolean"),
    **dict.fromkeys(("rate_count", "rate_limit", "depth", "depth_bytes", "depth_max"), "bigint"),
    **dict.fromkeys(("quota_count", "quota_bytes", "retry_after_ms", "count"), "bigint"),
    **dict.fromkeys(("due_us", "since_us", "until_us", "not_before_us", "seen_ms"), "bigint"),
    **dict.fromkeys(("via", "was", "before", "after", "occasion", "action"), "string"),
    **dict.fromkeys(("rules", "cause", "settings", "problem", "breakers_count"), "string"),
    **dict.fromkeys(("origin", "partition"), "int"),
    "origin_seq": "bigint",
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

DEFAULTS: Final = {
    column: [Default(kinds, value) for name, kinds, value in omitted_defaults() if name == column]
    for column in LINE
    if column != "seq"
}
"""The values that lines omit, by column."""
