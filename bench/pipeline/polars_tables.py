"""The aggregated tables in Polars. `arrivals` have the columns of `weight` and `minute`."""

import polars as pl

_REASONS = (
    "rate_limited",
    "fanout_exceeded",
    "quota_exceeded",
    "backpressure",
    "circuit_open",
    "budget_exceeded",
    "access_denied",
)
_UNSEEN = ["rate_limited", "access_denied", "storage_full", "mailbox_unavailable"]
_SENDER, _INBOX = ["day", "relay", "sender"], ["day", "relay", "endpoint"]
_N = pl.col("n")
_REJECTED = pl.col("kind") == "rejected"
_HAS_ENDPOINT = pl.col("endpoint") != ""
_STORED = ~_REJECTED & _HAS_ENDPOINT
_MINUTE_US, _DAY_US = 60_000_000, 86_400_000_000


def weight() -> pl.Expr:
    """Return the number of arrivals that a line counts."""
    return pl.when(_REJECTED).then("count").otherwise(1).alias("n")


def minute() -> pl.Expr:
    """Return the minute of an arrival.

    A line that counts several is written later, perhaps on the next day.
    """
    at_us, since_us = pl.col("at_us"), pl.col("since_us")
    same_day = since_us // _DAY_US == at_us // _DAY_US
    counted = _REJECTED & (since_us > 0) & same_day
    return _minute_of(pl.when(counted).then(since_us).otherwise(at_us)).alias("minute")


def rejections(arrivals: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each rejection."""
    return arrivals.filter(_REJECTED).select(
        "day", "relay", "seq", pl.from_epoch("at_us", time_unit="us").alias("at"),
        "id", "sender", "subject", "endpoint", "reason", "detail", "count", "tier",
        "retry_after_ms", "kept",
    )  # fmt: skip


def traffic(arrivals: pl.LazyFrame, transitions: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each minute of a relay."""
    group = ["day", "relay", "minute"]
    arrived = arrivals.group_by(group).agg(
        _N.filter(pl.col("part") == 0).sum().alias("publishes"),
        _STORED.sum().alias("stored"),
        (~_REJECTED & ~_HAS_ENDPOINT).sum().alias("unclaimed"),
        _N.filter(_REJECTED).sum().alias("rejected"),
        pl.col("size").filter(_STORED).sum().alias("bytes"),
    )
    finished = (
        transitions.filter(pl.col("kind").is_in(["acked", "failed"]))
        .with_columns(_minute_of(pl.col("at_us")).alias("minute"))
        .group_by(group)
        .agg(*((pl.col("kind") == kind).sum().alias(kind) for kind in ("acked", "failed")))
    )
    both = arrived.join(finished, on=group, how="full", coalesce=True)
    return both.with_columns(pl.exclude(group).fill_null(0))


def pairs(arrivals: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each sender and mailbox it wrote to."""
    at_us = pl.col("at_us")
    seen = ~_REJECTED | ~pl.col("reason").is_in(_UNSEEN)
    sums = (
        arrivals.filter(_HAS_ENDPOINT)
        .group_by(*_SENDER, "endpoint")
        .agg(
            _N.sum().alias("arrivals"),
            _STORED.sum().alias("stored"),
            _N.filter(_REJECTED).sum().alias("rejected"),
            pl.col("size").filter(_STORED).sum().alias("bytes"),
            at_us.min().alias("first_at"),
            at_us.max().alias("last_at"),
            (at_us // 1000).filter(seen).max().alias("last_seen_ms"),
            (pl.col("seq") * 4 + pl.col("tier")).max().alias("last_tier"),
        )
    )
    return sums.with_columns(
        pl.from_epoch("first_at", time_unit="us"),
        pl.from_epoch("last_at", time_unit="us"),
        pl.col("last_tier") % 4,
    )


def pressure(arrivals: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each mailbox in each minute."""
    share = (pl.col("depth") / pl.col("depth_max")).clip(upper_bound=1.0)
    full = pl.when(pl.col("depth_max") > 0).then(share).otherwise(0.0)
    return (
        arrivals.filter(_HAS_ENDPOINT)
        .group_by(*_INBOX, "minute")
        .agg(
            _N.sum().alias("arrivals"),
            pl.col("depth").max().alias("depth_peak"),
            pl.col("depth_max").max(),
            full.max().alias("pressure"),
        )
    )


def senders(arrivals: pl.LazyFrame, of_pairs: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each sender; aggregated by minute first, to find the busiest."""
    sums = {
        "publishes": _N.filter(pl.col("part") == 0).sum(),
        "stored": _STORED.sum(),
        "rejected": _N.filter(_REJECTED).sum(),
        **{name: _N.filter(_REJECTED & (pl.col("reason") == name)).sum() for name in _REASONS},
        "bytes": pl.col("size").filter(_STORED).sum(),
        **{
            f"tier{one}": _N.filter(_HAS_ENDPOINT & (pl.col("tier") == one)).sum()
            for one in (1, 2, 3)
        },
    }
    minutes = arrivals.group_by(*_SENDER, "minute").agg(
        *(amount.alias(name) for name, amount in sums.items())
    )
    days = minutes.group_by(_SENDER).agg(
        pl.col("publishes").max().alias("busiest_minute"), *(pl.col(name).sum() for name in sums)
    )
    back = of_pairs.select(
        "day", "relay", pl.col("endpoint").alias("sender"), pl.col("sender").alias("endpoint"),
        pl.col("arrivals").alias("answered"),
    )  # fmt: skip
    partners = of_pairs.join(back, on=[*_SENDER, "endpoint"], how="left").group_by(_SENDER)
    contacts = partners.agg(pl.len().alias("recipients"), pl.col("answered").sum().alias("answers"))
    known = days.join(contacts, on=_SENDER, how="left")
    return known.with_columns(pl.col("recipients", "answers").fill_null(0))


def inboxes(
    of_pairs: pl.LazyFrame,
    of_pressure: pl.LazyFrame,
    transitions: pl.LazyFrame,
    messages: pl.LazyFrame,
) -> pl.LazyFrame:
    """Return one row for each mailbox with any event."""
    arrived = of_pairs.group_by(_INBOX).agg(
        pl.col("arrivals", "stored", "rejected", "bytes").sum(), pl.len().alias("senders")
    )
    fullest = of_pressure.group_by(_INBOX).agg(
        pl.col("depth_peak").max(), pl.col("pressure").max().alias("pressure_peak")
    )
    kind = pl.col("kind")
    finished = transitions.group_by(_INBOX).agg(
        *((kind == one).sum().alias(one) for one in ("acked", "failed", "evicted")),
        ((kind == "expired") & (pl.col("was") == "pending")).sum().alias("expired"),
    )
    joined = arrived.join(fullest, on=_INBOX, how="full", coalesce=True).join(
        finished, on=_INBOX, how="full", coalesce=True
    )
    waits = messages.group_by(_INBOX).agg(_percentiles(50, 95))
    return joined.with_columns(pl.exclude(_INBOX).fill_null(0)).join(waits, on=_INBOX, how="left")


def latency(messages: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each mailbox and hour."""
    hours = messages.with_columns(pl.col("arrived_at").dt.truncate("1h").alias("hour"))
    return hours.group_by(*_INBOX, "hour").agg(
        pl.len().alias("messages"), *_percentiles(50, 95, 99)
    )


def dead_letters(messages: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each mailbox and reason."""
    died = messages.filter(pl.col("died_at").is_not_null())
    state = pl.col("state")
    reason = pl.col("died_of").str.split(": ").list.first().alias("reason")
    return died.group_by(*_INBOX, reason).agg(
        pl.len().alias("letters"),
        pl.col("sender").n_unique().alias("senders"),
        (pl.col("redrives") > 0).sum().alias("redriven"),
        (state == "purged").sum().alias("purged"),
        (state == "dead").sum().alias("waiting"),
        pl.col("died_at").min().alias("first_at"),
        pl.col("died_at").max().alias("last_at"),
    )


def threads(arrivals: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row for each conversation of several messages."""
    group = ["day", "relay", "thread"]
    named = arrivals.with_columns(
        pl.when(pl.col("thread") == "").then("id").otherwise("thread").alias("thread")
    )
    followed = named.filter(pl.col("parent").is_not_null()).select(group).unique()
    calls, exhausted = pl.col("call_budget_remaining"), pl.col("reason") == "budget_exceeded"
    return (
        named.join(followed, on=group, how="semi")
        .group_by(group)
        .agg(
            _N.sum().alias("messages"),
            pl.col("answer").sum().alias("answers"),
            _N.filter(_REJECTED).sum().alias("rejected"),
            (_REJECTED & exhausted & (calls <= 0)).sum().alias("exhausted"),
            pl.col("sender").unique().alias("writers"),
            pl.col("endpoint").unique().alias("readers"),
            calls.min().alias("calls_left"),
            pl.col("hop_count").max().alias("hops_max"),
            pl.from_epoch(pl.col("at_us").min(), time_unit="us").alias("first_at"),
            pl.from_epoch(pl.col("at_us").max(), time_unit="us").alias("last_at"),
        )
        .with_columns(
            pl.col("writers")
            .list.set_union("readers")
            .list.set_difference([""])
            .list.sort()
            .alias("participants")
        )
        .drop("writers", "readers")
    )


def _percentiles(*percents: int) -> list[pl.Expr]:
    return [
        pl.col(f"{what}_ms").quantile(one / 100, "linear").alias(f"{what}_p{one}_ms")
        for what in ("wait", "total")
        for one in percents
    ]


def _minute_of(instant_us: pl.Expr) -> pl.Expr:
    return pl.from_epoch(instant_us // _MINUTE_US * _MINUTE_US, time_unit="us")
