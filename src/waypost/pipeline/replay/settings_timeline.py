"""Which settings were in force when, and which would have been.

An era begins with a `settings` line of a relay; before the first, the defaults hold. Many eras
share their settings: those that do are one regime, whose numbers native expressions use as
columns. Executors get the same as plain data, and read the settings from it themselves.
"""

from collections.abc import Iterable

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.schemas import columns
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, merge_settings, to_config_document

_ENDLESS = 1 << 62

# What native expressions know of a regime. "Known": the relay recorded the number in question, and
# nothing that it depends on is different now.
NUMBERS = columns(
    """
    regime int, rate_on boolean, rate_exact boolean, rate_bounded boolean, rate_max bigint,
    cap bigint, qos_on boolean, quota_known boolean, tier_known boolean, window_ms bigint,
    count_1 bigint, bytes_1 bigint, count_2 bigint, bytes_2 bigint, count_3 bigint, bytes_3 bigint,
    inbox_max bigint, inbox_known boolean, inbox_same boolean, inbox_rejects boolean,
    breaker_known boolean, threshold bigint, hops bigint, hops_recorded bigint
    """
)

_SPAN = columns("era_relay string, first_seq bigint, end_seq bigint")


class SettingsPeriod(msgspec.Struct, frozen=True):
    """From `first_seq` on: what was in force, and what would have been. `restart`: begun anew."""

    first_seq: int
    restart: bool
    recorded: Settings
    replayed: Settings


class Eras:
    """The eras of every relay in a lake."""

    def __init__(
        self, spark: SparkSession, by_relay: dict[str, list[SettingsPeriod]], first: SettingsPeriod
    ) -> None:
        self._spark = spark
        self.by_relay = by_relay
        self.first = first
        """What holds before a relay has said anything."""
        every = [era for eras in by_relay.values() for era in eras] or [first]
        pairs = {_identity(era): era for era in every}
        self.regimes = list(pairs.values())
        self._number = {pair: number for number, pair in enumerate(pairs)}

    def attach(self, rows: DataFrame) -> DataFrame:
        """`rows`, which have `relay` and `seq`, with the numbers of the regime each is in."""
        if len(self.regimes) == 1:
            numbers = _numbers(0, self.regimes[0])
            return rows.select(
                "*",
                *(
                    F.lit(value).cast(field.dataType).alias(field.name)
                    for field, value in zip(NUMBERS, numbers, strict=True)
                ),
            )
        schema = StructType([*_SPAN, *NUMBERS])
        span = F.broadcast(self._spark.createDataFrame(self._spans(), schema))
        within = (
            (F.col("relay") == F.col("era_relay"))
            & (F.col("seq") >= F.col("first_seq"))
            & (F.col("seq") < F.col("end_seq"))
        )
        joined = rows.join(span, on=within, how="inner")
        return joined.drop("era_relay", "first_seq", "end_seq")

    def limit(self) -> Column:
        """The replayed rate limit of `sender`, as `resolve_limit` has it."""
        limit = F.col("rate_max")
        for number, era in enumerate(self.regimes):
            overrides = era.replayed.rate_limit.per_sender_overrides
            if not overrides:
                continue
            chosen = F.when(F.lit(False), F.col("rate_max"))
            for prefix in sorted(overrides, key=len, reverse=True):
                chosen = chosen.when(F.col("sender").startswith(prefix), overrides[prefix])
            mine = F.col("regime") == number
            limit = F.when(mine, F.coalesce(chosen, F.col("rate_max"))).otherwise(limit)
        return limit

    def tiers_count(self) -> bool:
        """Whether tiers would have had a say at any time."""
        return any(era.replayed.qos.enabled for era in self.regimes)

    def tiers_stand(self) -> bool:
        """Whether recorded tiers are those a replay would find, if all senders pass as they did."""
        return all(
            not new.enabled
            or (old.enabled and old.bidirectional_window_ms == new.bidirectional_window_ms)
            for old, new in ((era.recorded.qos, era.replayed.qos) for era in self.regimes)
        )

    def evicts(self) -> bool:
        """Whether mail would have been evicted for other mail at any time."""
        return any(
            era.replayed.qos.enabled and era.replayed.qos.overflow == "evict_heaviest"
            for era in self.regimes
        )

    def for_executors(self, keys: list[tuple[int, str]]) -> dict[str, object]:
        """The same as text and numbers, for `SettingsInForce`; `keys` are for `Relays`."""
        texts: dict[bytes, int] = {}

        def told(era: SettingsPeriod) -> tuple[int, bool, int, int]:
            text = msgspec.json.encode(to_config_document(era.replayed))
            place = texts.setdefault(text, len(texts))
            return era.first_seq, era.restart, place, era.recorded.max_hops

        eras = {relay: [told(era) for era in eras] for relay, eras in self.by_relay.items()}
        return {"first": told(self.first), "eras": eras, "texts": list(texts), "keys": keys}

    def _spans(self) -> list[tuple[object, ...]]:
        spans: list[tuple[object, ...]] = []
        for relay, eras in self.by_relay.items():
            ends = [era.first_seq for era in eras[1:]] + [_ENDLESS]
            for era, end in zip(eras, ends, strict=True):
                numbers = _numbers(self._number[_identity(era)], era)
                spans.append((relay, era.first_seq, end, *numbers))
        return spans


def read_eras(events: DataFrame, relays: Iterable[str], changes: bytes | None) -> Eras:
    """The eras of all `relays`, each with `changes` (the text of a `config.json`) laid over it.

    Raises `InvalidSettings` if `changes` make no settings.
    """
    first = _era(0, False, Settings(), changes)
    by_relay: dict[str, list[SettingsPeriod]] = {}
    lines = events.where(F.col("kind") == "settings").select("relay", "seq", "cause", "settings")
    for line in sorted(lines.collect(), key=lambda row: (row.relay, row.seq)):
        recorded = _recorded(line.settings, f"event {line.seq} of {line.relay}")
        era = _era(line.seq, line.cause == "start", recorded, changes)
        # Where a journal is whole, its first line tells the settings.
        before = [] if line.seq == 1 else [first]
        by_relay.setdefault(line.relay, before).append(era)
    for relay in relays:
        by_relay.setdefault(relay, [first])
    return Eras(events.sparkSession, by_relay, first)


def _identity(era: SettingsPeriod) -> tuple[bytes, bytes]:
    encode = msgspec.json.encode
    return encode(era.recorded), encode(era.replayed)


def _era(
    first_seq: int, restart: bool, recorded: Settings, changes: bytes | None
) -> SettingsPeriod:
    replayed = recorded if changes is None else merge_settings(recorded, changes)
    return SettingsPeriod(first_seq, restart, recorded, replayed)


def _recorded(text: str, where: str) -> Settings:
    try:
        return merge_settings(Settings(), text.encode())
    except InvalidSettings as problem:
        raise LakeUnusable(f"the settings recorded as {where} are not valid: {problem}") from None


def _numbers(number: int, era: SettingsPeriod) -> tuple[object, ...]:
    old, new = era.recorded, era.replayed
    rate, was = new.rate_limit, old.rate_limit
    qos, circuit = new.qos, new.circuit_breaker
    quota_known = old.qos.enabled
    same_window = old.qos.bidirectional_window_ms == qos.bidirectional_window_ms
    inbox_known = quota_known and qos.enabled and old.qos.overflow == qos.overflow
    idle = old.housekeeping.breaker_idle_ms == new.housekeeping.breaker_idle_ms
    limits = (qos.tier1, qos.tier2, qos.tier3)
    return (
        number,
        rate.enabled,
        was.enabled and was.window_secs == rate.window_secs,
        was.enabled and was.window_secs >= rate.window_secs,
        rate.max_per_window,
        new.backpressure.max_mailbox_size if new.backpressure.enabled else None,
        qos.enabled,
        quota_known,
        quota_known and same_window,
        qos.bidirectional_window_ms,
        *(number for tier in limits for number in (tier.max_envelopes, tier.max_bytes)),
        qos.inbox_max_bytes,
        inbox_known and old.qos.inbox_max_bytes <= qos.inbox_max_bytes,
        inbox_known and old.qos.inbox_max_bytes == qos.inbox_max_bytes,
        qos.overflow == "reject",
        old.circuit_breaker == circuit and idle,
        circuit.failure_threshold if circuit.enabled else _ENDLESS,
        new.max_hops,
        old.max_hops,
    )
