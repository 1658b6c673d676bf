"""The settings timeline: the settings in force at each event, as recorded and as replayed.

A settings period begins with a `settings` event of a relay; the defaults hold before the first.
Periods with the same recorded and replayed settings share a `settings_id`. Three readers use it:

- native expressions get the settings as columns (`SettingsTimeline.attach`);
- executors get them as plain data (`for_executors`), read by `SettingsInForce`;
- the driver asks what they have in common (`uses_tiers`, `evicts`, `ignored_settings`).
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.schemas import columns
from waypost.policy.breakers import DELIVERIES
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, merge_settings, to_config_document

_UNLIMITED = 1 << 62

# Settings of a period as columns. `…_known`, `…_exact`: the relay recorded the state that the check
# reads, and no setting that the state depends on has changed.
SETTINGS_COLUMNS = columns(
    """
    settings_id int, rate_on boolean, rate_same boolean, rate_exact boolean, rate_bounded boolean,
    rate_max bigint,
    cap bigint, qos_on boolean, quota_known boolean, tier_known boolean, window_ms bigint,
    count_1 bigint, bytes_1 bigint, count_2 bigint, bytes_2 bigint, count_3 bigint, bytes_3 bigint,
    share_count bigint, share_bytes bigint, share_same boolean, own_room boolean, own_same boolean,
    inbox_max bigint, inbox_known boolean, inbox_same boolean, inbox_rejects boolean,
    breaker_known boolean, threshold bigint, hops bigint, hops_recorded bigint, fanout_max bigint
    """
)

_PERIOD_COLUMNS = columns("period_relay string, first_seq bigint, end_seq bigint")

# Paths in `config.json` that the replay applies; a change of any other is reported.
_APPLIED = (
    "maxHops",
    "maxFanout",
    "qos",
    "relayMessages",
    "reliability.rateLimit",
    "reliability.circuitBreaker",
    "reliability.backpressure.enabled",
    "reliability.backpressure.maxMailboxSize",
    "housekeeping.breakerIdleMs",
)


_PlainPeriod = tuple[int, bool, int, int, bool]
"""A period on an executor: first seq, restart, index of its settings, recorded `maxHops`, and
whether its breakers count deliveries."""


class SettingsPeriod(msgspec.Struct, frozen=True):
    """Settings from `first_seq` on, as recorded and as replayed. `restart`: the relay started.

    `counts_deliveries`: its breakers count the outcome of every delivery, as relays do that journal
    `breakers_count`.
    """

    first_seq: int
    restart: bool
    recorded: Settings
    replayed: Settings
    counts_deliveries: bool = False


class SettingsTimeline:
    """The settings periods of every relay in a lake."""

    def __init__(
        self,
        spark: SparkSession,
        by_relay: dict[str, list[SettingsPeriod]],
        default: SettingsPeriod,
    ) -> None:
        self._spark = spark
        self.by_relay = by_relay
        self.default = default
        """The period before the first `settings` event of a relay."""
        periods = [period for one in by_relay.values() for period in one] or [default]
        distinct = {_identity(period): period for period in periods}
        self.distinct = list(distinct.values())
        """One period of each `settings_id`, in order."""
        self._settings_ids = {pair: number for number, pair in enumerate(distinct)}

    def attach(self, rows: DataFrame) -> DataFrame:
        """Add `SETTINGS_COLUMNS` to `rows`, by their `relay` and `seq`."""
        if len(self.distinct) == 1:
            values = _column_values(0, self.distinct[0])
            return rows.select(
                "*",
                *(
                    F.lit(value).cast(field.dataType).alias(field.name)
                    for field, value in zip(SETTINGS_COLUMNS, values, strict=True)
                ),
            )
        schema = StructType([*_PERIOD_COLUMNS, *SETTINGS_COLUMNS])
        periods = F.broadcast(self._spark.createDataFrame(self._period_rows(), schema))
        within = (
            (F.col("relay") == F.col("period_relay"))
            & (F.col("seq") >= F.col("first_seq"))
            & (F.col("seq") < F.col("end_seq"))
        )
        joined = rows.join(periods, on=within, how="inner")
        return joined.drop("period_relay", "first_seq", "end_seq")

    def rate_limit(self) -> Column:
        """Return the replayed rate limit of `sender`, as `resolve_limit` computes it."""
        limit = F.col("rate_max")
        for settings_id, period in enumerate(self.distinct):
            overrides = period.replayed.rate_limit.per_sender_overrides
            if not overrides:
                continue
            override = F.when(F.lit(False), F.col("rate_max"))
            for prefix in sorted(overrides, key=len, reverse=True):
                override = override.when(F.col("sender").startswith(prefix), overrides[prefix])
            in_period = F.col("settings_id") == settings_id
            limit = F.when(in_period, F.coalesce(override, F.col("rate_max"))).otherwise(limit)
        return limit

    def uses_tiers(self) -> bool:
        """Return whether any replayed settings use tiers."""
        return any(period.replayed.qos.enabled for period in self.distinct)

    def keeps_tiers(self) -> bool:
        """Return whether the recorded tiers hold, provided every sender passes as recorded."""
        return all(
            not new.enabled
            or (old.enabled and old.bidirectional_window_ms == new.bidirectional_window_ms)
            for old, new in ((one.recorded.qos, one.replayed.qos) for one in self.distinct)
        )

    def evicts(self) -> bool:
        """Return whether any replayed settings evict messages to make room."""
        return any(
            period.replayed.qos.enabled and period.replayed.qos.overflow != "reject"
            for period in self.distinct
        )

    def evicts_by_tier(self) -> bool:
        """Return whether evictions depend on the tiers of senders under any replayed settings."""
        return any(
            period.replayed.qos.enabled and period.replayed.qos.overflow == "evict_least_known"
            for period in self.distinct
        )

    def ignored_settings(self) -> list[str]:
        """Return the changed paths of `config.json` that the replay does not apply."""
        return sorted({path for period in self.distinct for path in _ignored(period)})

    def for_executors(self, first_ids: list[tuple[int, str]]) -> dict[str, Any]:
        """Return the timeline as plain data for `SettingsInForce`, and `first_ids` with it."""
        documents: dict[bytes, int] = {}

        def plain(period: SettingsPeriod) -> _PlainPeriod:
            document = msgspec.json.encode(to_config_document(period.replayed))
            index = documents.setdefault(document, len(documents))
            hops, counts = period.recorded.max_hops, period.counts_deliveries
            return period.first_seq, period.restart, index, hops, counts

        by_relay = {relay: [plain(one) for one in some] for relay, some in self.by_relay.items()}
        return {
            "default": plain(self.default),
            "by_relay": by_relay,
            "documents": list(documents),
            "first_ids": first_ids,
        }

    def _period_rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for relay, periods in self.by_relay.items():
            ends = [period.first_seq for period in periods[1:]] + [_UNLIMITED]
            for period, end in zip(periods, ends, strict=True):
                values = _column_values(self._settings_ids[_identity(period)], period)
                rows.append((relay, period.first_seq, end, *values))
        return rows


class SettingsInForce:
    """The replayed settings at the current event, on an executor.

    Reads the data of `SettingsTimeline.for_executors`. Call `start` first, then `advance` with
    events in order.
    """

    def __init__(self, settings_data: dict[str, Any]) -> None:
        self._settings = [merge_settings(Settings(), one) for one in settings_data["documents"]]
        self._default = settings_data["default"]
        self._by_relay = settings_data["by_relay"]
        self._ahead: list[_PlainPeriod] = []
        self.until_seq = 0
        self.settings = self._settings[self._default[2]]
        self.recorded_max_hops: int = self._default[3]
        self.counts_deliveries: bool = self._default[4]

    def start(self, relay: str) -> None:
        """Go to the first event of `relay`."""
        self._ahead = list(reversed(self._periods(relay)))
        self.until_seq = 0
        self.advance(0)

    def advance(self, seq: int) -> bool:
        """Go on to event `seq`, at or past `until_seq`. Return whether the relay restarted."""
        restarted = False
        while self._ahead and self._ahead[-1][0] <= seq:
            _, restart, index, self.recorded_max_hops, self.counts_deliveries = self._ahead.pop()
            self.settings = self._settings[index]
            restarted = restarted or restart
        self.until_seq = self._ahead[-1][0] if self._ahead else _UNLIMITED
        return restarted

    def has_one_rate_window(self, relay: str) -> bool:
        """Return whether the rate window of `relay` has the same length in all its periods."""
        indexes = {index for _, _, index, _, _ in self._periods(relay)}
        return len({self._settings[index].rate_limit.window_secs for index in indexes}) == 1

    def _periods(self, relay: str) -> list[_PlainPeriod]:
        return self._by_relay.get(relay) or [self._default]


def read_timeline(
    events: DataFrame, relays: Iterable[str], changes: bytes | None
) -> SettingsTimeline:
    """Read the settings periods of all `relays`, and apply `changes` (a `config.json`) to each.

    Raise `InvalidSettings` if the result is not valid.
    """
    default = _period(0, False, Settings(), changes, False)
    by_relay: dict[str, list[SettingsPeriod]] = {}
    rows = events.where(F.col("kind") == "settings").select(
        "relay", "seq", "cause", "settings", "breakers_count"
    )
    for row in sorted(rows.collect(), key=lambda row: (row.relay, row.seq)):
        recorded = _parse(row.settings, f"event {row.seq} of {row.relay}")
        counts = row.breakers_count == DELIVERIES
        period = _period(row.seq, row.cause == "start", recorded, changes, counts)
        # A complete journal begins with its settings.
        before = [] if row.seq == 1 else [default]
        by_relay.setdefault(row.relay, before).append(period)
    for relay in relays:
        by_relay.setdefault(relay, [default])
    return SettingsTimeline(events.sparkSession, by_relay, default)


def _identity(period: SettingsPeriod) -> tuple[bytes, bytes]:
    encode = msgspec.json.encode
    return encode(period.recorded), encode(period.replayed)


def _period(
    first_seq: int,
    restart: bool,
    recorded: Settings,
    changes: bytes | None,
    counts_deliveries: bool,
) -> SettingsPeriod:
    replayed = recorded if changes is None else merge_settings(recorded, changes)
    return SettingsPeriod(first_seq, restart, recorded, replayed, counts_deliveries)


def _parse(document: str, source: str) -> Settings:
    try:
        return merge_settings(Settings(), document.encode())
    except InvalidSettings as problem:
        raise LakeUnusable(f"invalid settings recorded in {source}: {problem}") from None


def _column_values(settings_id: int, period: SettingsPeriod) -> tuple[object, ...]:
    """Return the values of `SETTINGS_COLUMNS`."""
    old, new = period.recorded, period.replayed
    rate, old_rate = new.rate_limit, old.rate_limit
    qos, circuit = new.qos, new.circuit_breaker
    quota_known = old.qos.enabled
    same_window = old.qos.bidirectional_window_ms == qos.bidirectional_window_ms
    inbox_known = quota_known and qos.enabled and old.qos.overflow == qos.overflow
    same_victims = same_window or qos.overflow != "evict_least_known"
    share = qos.strangers
    same_own = old.relay_messages == new.relay_messages
    same_idle = old.housekeeping.breaker_idle_ms == new.housekeeping.breaker_idle_ms
    tiers = (qos.tier1, qos.tier2, qos.tier3)
    return (
        settings_id,
        rate.enabled,
        rate == old_rate,
        old_rate.enabled and old_rate.window_secs == rate.window_secs,
        old_rate.enabled and old_rate.window_secs >= rate.window_secs,
        rate.max_per_window,
        new.backpressure.max_mailbox_size if new.backpressure.enabled else None,
        qos.enabled,
        quota_known,
        quota_known and same_window,
        qos.bidirectional_window_ms,
        *(limit for tier in tiers for limit in (tier.max_envelopes, tier.max_bytes)),
        _UNLIMITED if share is None else share.max_envelopes,
        _UNLIMITED if share is None else share.max_bytes,
        quota_known and same_window and old.qos.strangers == share,
        new.relay_messages is not None,
        same_own,
        qos.inbox_max_bytes,
        inbox_known and old.qos.inbox_max_bytes <= qos.inbox_max_bytes,
        inbox_known
        and same_victims
        and same_own
        and old.qos.inbox_max_bytes == qos.inbox_max_bytes,
        qos.overflow == "reject",
        old.circuit_breaker == circuit and same_idle,
        circuit.failure_threshold if circuit.enabled else _UNLIMITED,
        new.max_hops,
        old.max_hops,
        new.max_fanout or None,
    )


def _ignored(period: SettingsPeriod) -> list[str]:
    old = _flatten(to_config_document(period.recorded))
    new = _flatten(to_config_document(period.replayed))
    return [
        path
        for path in old.keys() | new.keys()
        if old.get(path) != new.get(path)
        and not any(path == one or path.startswith(f"{one}.") for one in _APPLIED)
    ]


def _flatten(document: dict[str, object], above: str = "") -> dict[str, object]:
    """Return each value of a document by its path, such as `reliability.rateLimit.enabled`."""
    found: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= _flatten(value, f"{above}{name}.")
        else:
            found[above + name] = value
    return found
