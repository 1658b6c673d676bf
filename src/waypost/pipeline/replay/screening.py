"""Screening: finds senders and endpoints that other settings cannot affect, so need no replay.

The relay recorded with each arrival the state it decided by: window, mailbox, quota, breaker. While
every decision about a key (a sender or an endpoint) stays the same, its state stays the same too,
and so does what was recorded. Hence, by induction: a key is unaffected if each of its arrivals,
decided under the replayed settings from the recorded state, gets the recorded decision. A key is
affected if one arrival gets another decision, or if state that matters was not recorded and cannot
be bounded.

One pass over the lake computes facts about every pair of sender and endpoint; those about senders
and endpoints are aggregates of these. No sort, no Python.
"""

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS
from waypost.pipeline.replay.arrivals import (
    FORWARDED,
    LIMITED,
    TOO_WIDE,
    is_arrival,
    with_arrival_columns,
)
from waypost.pipeline.replay.keys import KeySet
from waypost.pipeline.replay.settings_timeline import SettingsTimeline
from waypost.policy.breakers import CircuitState
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import ANONYMOUS, RELAY

_OTHER_KINDS = ("failed", "returned", "breaker", "evicted", "redriven", "endpoint")
_UNLIMITED = 1 << 62
_UNCLEAR = "unclear"
COUNTS = ("arrivals", "counted", *(reason.value for reason in Reason))


@dataclass(frozen=True)
class Affected:
    """The result of screening.

    `pairs` are the facts by pair, and `totals` those of `sum_up`. `senders` are those to replay.
    `endpoints` are all in the journal: relay, name, redriven, fills_up, affected.
    """

    pairs: DataFrame
    totals: dict[str, int]
    senders: KeySet
    endpoints: pa.Table

    @property
    def has_redrives(self) -> bool:
        """Whether any message was redriven."""
        return bool(pc.max(self.endpoints["redriven"]).as_py())


def pair_facts(events: DataFrame, timeline: SettingsTimeline) -> DataFrame:
    """Return by relay, sender and endpoint what the other functions here aggregate."""
    kinds = F.col("kind").isin(*ARRIVALS, FORWARDED, *_OTHER_KINDS)
    rows = timeline.attach(with_arrival_columns(events).where(kinds))
    rows = rows.withColumns({"limit": timeline.rate_limit(), "is_arrival": is_arrival()})
    return rows.groupBy("relay", "sender", "endpoint").agg(
        *_facts_about_senders(), *_facts_about_endpoints()
    )


def screen_senders(pairs: DataFrame, *, shortcut: bool = True) -> DataFrame:
    """Return by relay and sender: `affected`, and the `COUNTS` of its arrivals.

    Without `shortcut`, all are affected.
    """
    facts = (
        pairs.where(F.col("sender").isNotNull())
        .groupBy("relay", "sender")
        .agg(
            F.max("differs_for_sender").alias("differs"),
            F.max("rate_unknown").alias("unknown"),
            F.min("limit").alias("limit"),
            *(F.sum(name).alias(name) for name in ("publishes", *COUNTS)),
        )
    )
    # A limit above the number of all publishes of a sender is never reached.
    reachable = F.col("unknown") & (F.col("publishes") > F.col("limit"))
    affected = F.col("differs") | reachable if shortcut else F.lit(True)
    return facts.withColumn("affected", affected)


def screen_endpoints(pairs: DataFrame, *, shortcut: bool = True) -> DataFrame:
    """Return by relay and endpoint: `affected`, and the number of `redriven` messages.

    `fills_up`: an arrival found the inbox full, and may have evicted messages. Includes every
    endpoint in the journal. Without `shortcut`, all are affected.
    """
    facts = (
        pairs.where(F.col("endpoint") != "")
        .groupBy("relay", "endpoint")
        .agg(
            *(F.max(name).alias(name) for name in ("differs", "evicts", "breaks", "breaker_new")),
            F.max("fills_up").alias("fills_up"),
            *(F.max(name).alias(name) for name in ("depth_most", "size_most")),
            *(F.sum(name).alias(name) for name in ("redriven", "failures")),
            *(F.min(name).alias(name) for name in ("threshold", "bytes_max")),
        )
    )
    # A breaker counts failures across settings periods, so changed settings of one affect the next.
    opens = F.col("breaks") | (F.col("failures") >= F.col("threshold"))
    fills = (F.col("depth_most") + 1) * F.col("size_most") > F.col("bytes_max")
    affected = (
        F.coalesce("differs", F.lit(False))
        | F.col("evicts")
        | (F.col("breaker_new") & opens)
        | F.coalesce(fills, F.lit(False))
    )
    if not shortcut:
        affected = F.lit(True)
    return facts.select("relay", "endpoint", "redriven", "fills_up", affected.alias("affected"))


def sum_up(senders: DataFrame) -> DataFrame:
    """Return one row: the sums of all `COUNTS`, the number of `senders`, and of those `affected`.

    `senders` are from `screen_senders`.
    """
    return senders.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS),
        F.count(F.lit(1)).alias("senders"),
        F.count_if("affected").alias("affected"),
    )


def _facts_about_senders() -> list[Column]:
    limited, over = F.col("old_reason") == LIMITED, F.col("rate_count") >= F.col("limit")
    single = F.col("is_arrival")
    replayed = single & ~F.col("not_replayed")
    counted_elsewhere = F.col("origin").isNotNull()
    exempt = ~F.col("rate_on") | (F.col("sender") == RELAY) | counted_elsewhere
    differs = (
        # Two windows decide about a sender without a key, and only one of them was recorded.
        F.when(F.col("sender") == ANONYMOUS, ~F.col("rate_same"))
        .when(exempt, limited)
        .when(F.col("rate_exact"), limited != over)
        .when(F.col("rate_bounded"), limited | over)
        .otherwise(limited)
    )
    # A publish rejected for its fan-out stays so: which endpoints it matched was not recorded.
    decided_wide = F.col("old_reason").isin(LIMITED, TOO_WIDE)
    wide = ~decided_wide & (F.col("parts") > F.coalesce("fanout_max", F.lit(_UNLIMITED)))
    only_counted = F.col("kind").isin(*ARRIVALS) & ~single
    return [
        F.max(replayed & (differs | wide)).alias("differs_for_sender"),
        F.max(replayed & ~exempt & ~F.col("rate_bounded")).alias("rate_unknown"),
        F.min("limit").alias("limit"),
        F.count_if(replayed & (F.col("part") == 0)).alias("publishes"),
        F.count_if(single).alias("arrivals"),
        F.sum(F.when(only_counted, F.col("count")).otherwise(0)).alias("counted"),
        *(
            F.count_if(single & (F.col("old_reason") == reason.value)).alias(reason.value)
            for reason in Reason
        ),
    ]


def _facts_about_endpoints() -> list[Column]:
    kind = F.col("kind")
    replayed = F.col("is_arrival") & ~F.col("not_replayed") & ~F.col("limited")
    quota_new = F.col("qos_on") & ~F.col("quota_known")
    bytes_max = F.least(
        F.when(F.col("qos_on") & ~F.col("inbox_known"), F.col("inbox_max")),
        F.when(quota_new, F.least("bytes_1", "bytes_2", "bytes_3")),
    )
    bytes_max = F.when(replayed & ~_depth_bytes_known(), bytes_max)
    uncounted = F.coalesce("uncounted", F.lit(False))
    return [
        F.max(replayed & (expected_reason() != F.col("old_reason"))).alias("differs"),
        F.max((kind == "evicted") & ~F.col("inbox_same")).alias("evicts"),
        F.max(replayed & F.coalesce(_inbox_full(), F.lit(True))).alias("fills_up"),
        F.max(kind == "breaker").alias("breaks"),
        F.max(~F.col("breaker_known")).alias("breaker_new"),
        F.count_if(kind.isin("failed", "returned") & ~uncounted).alias("failures"),
        F.min("threshold").alias("threshold"),
        F.count_if(kind == "redriven").alias("redriven"),
        F.max("depth").alias("depth_most"),
        F.max("size").alias("size_most"),
        F.min(bytes_max).alias("bytes_max"),
    ]


def expected_reason() -> Column:
    """Return why an arrival is rejected according to its recorded state; empty if accepted.

    Where the bytes in the mailbox were not recorded, the byte cap counts as not reached.
    """
    tier, size = F.col("tier"), F.col("size")
    counts = (F.col("count_1"), F.col("count_2"), F.col("count_3"))
    sizes = (F.col("bytes_1"), F.col("bytes_2"), F.col("bytes_3"))
    count_max = F.when(F.col("tier_known"), _by_tier(tier, counts)).otherwise(F.least(*counts))
    bytes_max = F.when(F.col("tier_known"), _by_tier(tier, sizes)).otherwise(F.least(*sizes))
    recorded = (F.col("quota_count") >= count_max) | (F.col("quota_bytes") + size > bytes_max)
    upper_bound = (F.col("depth") >= count_max) | (_bytes_after() > bytes_max)
    over_quota = F.when(F.col("quota_known"), recorded).otherwise(upper_bound)
    # A rejection by quota can be repeated only in the tier it was decided in.
    unclear = (F.col("old_reason") == Reason.QUOTA_EXCEEDED.value) & ~F.col("tier_known")
    full = _inbox_full()
    no_victims = F.col("inbox_same") & (F.col("old_reason") == Reason.BACKPRESSURE.value)
    rejected_when_full = F.col("inbox_rejects") | (size > F.col("inbox_max")) | no_victims
    by_mailbox = (
        F.when(unclear, F.lit(_UNCLEAR))
        .when(F.col("depth") >= F.coalesce("cap", F.lit(_UNLIMITED)), Reason.BACKPRESSURE.value)
        .when(full & rejected_when_full, Reason.BACKPRESSURE.value)
        .when(full & ~F.col("inbox_same"), F.lit(_UNCLEAR))  # other messages are evicted
        .when(F.col("qos_on") & over_quota, Reason.QUOTA_EXCEEDED.value)
        .when(_share_used_up(), Reason.QUOTA_EXCEEDED.value)
        .when(_share_unclear(), F.lit(_UNCLEAR))
        .otherwise("")
    )
    by_mailbox = _of_relay(by_mailbox)
    return (
        F.when(by_mailbox != "", by_mailbox)
        .when(F.col("breaker_known") & _breaker_rejects(), Reason.CIRCUIT_OPEN.value)
        .when(_budget_exceeded(), Reason.BUDGET_EXCEEDED.value)
        .otherwise("")
    )


def _of_relay(by_mailbox: Column) -> Column:
    """Return why the mailbox rejects an arrival: one of the relay has room of its own there.

    While that room is the same, the recorded decision holds.
    """
    own = F.col("sender") == RELAY
    full = F.col("old_reason") == Reason.BACKPRESSURE.value
    return (
        F.when(own & ~F.col("own_same"), F.lit(_UNCLEAR))
        .when(own & F.col("own_room"), F.when(full, Reason.BACKPRESSURE.value).otherwise(""))
        .otherwise(by_mailbox)
    )


def _share_used_up() -> Column:
    """Return whether the share of strangers rejects the arrival, whose own quota does not.

    What strangers had in the mailbox was not recorded. While their share is the same, the recorded
    decision holds.
    """
    recorded = F.col("old_reason") == Reason.QUOTA_EXCEEDED.value
    return F.col("qos_on") & F.col("share_same") & (F.col("tier") == 1) & recorded


def _share_unclear() -> Column:
    """Return whether another share may reject the arrival: not if the mailbox fits into it."""
    may_be_stranger = ~F.col("tier_known") | (F.col("tier") == 1)
    limited = F.col("share_count") < _UNLIMITED
    fits = (F.col("depth") < F.col("share_count")) & (_bytes_after() <= F.col("share_bytes"))
    doubtful = may_be_stranger & limited & ~F.coalesce(fits, F.lit(False))
    return F.col("qos_on") & ~F.col("share_same") & doubtful


def _inbox_full() -> Column:
    """Return whether the arrival does not fit into its inbox; null if unknown."""
    return F.col("qos_on") & (_bytes_after() > F.col("inbox_max"))


def _depth_bytes_known() -> Column:
    """Return whether the bytes in the mailbox are known; older journals lack `depth_bytes`."""
    return (F.col("depth") == 0) | (F.coalesce("depth_bytes", F.lit(0)) > 0)


def _bytes_after() -> Column:
    """Return the bytes in the mailbox including the arrival; null if unknown."""
    return F.when(_depth_bytes_known(), F.coalesce("depth_bytes", F.lit(0)) + F.col("size"))


def _breaker_rejects() -> Column:
    """Return whether the breaker, in its recorded state, rejects the arrival."""
    # Half open, it rejects arrivals while it waits for the outcome of a probe.
    awaits_probe = F.col("old_reason") == Reason.CIRCUIT_OPEN.value
    half_open = F.col("breaker") == CircuitState.HALF_OPEN.value
    return (F.col("breaker") == CircuitState.OPEN.value) | (half_open & awaits_probe)


def _budget_exceeded() -> Column:
    """Return whether the budget rejects the arrival.

    Only `maxHops` can change that. While it is the same, the recorded decision holds; otherwise
    the hops alone decide here.
    """
    same = F.col("hops") == F.col("hops_recorded")
    recorded = F.col("old_reason") == Reason.BUDGET_EXCEEDED.value
    return F.when(same, recorded).otherwise(F.col("hop_count") >= _effective_hops())


def _effective_hops() -> Column:
    """Return the hops a budget allows; one that had the relay's limit gets the replayed limit."""
    own, new, old = F.col("max_hops"), F.col("hops"), F.col("hops_recorded")
    return F.when(new == old, own).when(own == old, new).otherwise(F.least(own, new))


def _by_tier(tier: Column, limits: tuple[Column, Column, Column]) -> Column:
    return F.when(tier == 3, limits[2]).when(tier == 2, limits[1]).otherwise(limits[0])
