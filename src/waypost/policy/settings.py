"""Settings of a relay: defaults, validation and lint.

Rule 1  Settings are accepted or rejected as a whole: with one bad field or one unknown key, the
        old settings stay.
Rule 2  `config.json` uses camelCase and nests the three reliability groups; Python does not.
Rule 3  `lint` reports combinations that are valid but cannot work as intended. A limit that is
        switched off is intended.

This module does not know where settings come from or when they change.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import msgspec

from waypost.policy.backpressure import DEFAULT_BP_CONFIG, BackpressureConfig
from waypost.policy.bounds import (
    ancestor_chain_max,
    connections_max,
    endpoints_max,
    number_max,
    payload_max_bytes,
    wait_max_s,
)
from waypost.policy.breakers import DEFAULT_CB_CONFIG, CircuitBreakerConfig
from waypost.policy.budgets import DEFAULT_CALL_BUDGET, DEFAULT_MAX_HOPS, DEFAULT_TTL_MS
from waypost.policy.errors import InvalidSettings
from waypost.policy.names import NamesConfig
from waypost.policy.rate_limits import DEFAULT_RATE_LIMIT_CONFIG, PositiveInt, RateLimitConfig
from waypost.policy.redelivery import RedeliveryConfig
from waypost.policy.setting_keys import KeyTree, find_unknown_key, keys_of
from waypost.policy.signal_limits import SignalsConfig
from waypost.policy.tiers import UNLIMITED, WEEK_MS, QosConfig, TierLimits
from waypost.policy.webhooks import WebhooksConfig

RELIABILITY = {
    "rateLimit": "rate_limit",
    "circuitBreaker": "circuit_breaker",
    "backpressure": "backpressure",
}


class HousekeepingConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Retention and intervals of the maintenance tasks, in bytes and ms."""

    sweep_interval_ms: PositiveInt = 5_000
    breaker_idle_ms: PositiveInt = 3_600_000
    dead_letter_retention_ms: PositiveInt = WEEK_MS
    duplicate_window_ms: PositiveInt = 24 * 3_600_000
    journal_retention_ms: PositiveInt = WEEK_MS
    segment_max_bytes: Annotated[int, msgspec.Meta(ge=4096)] = 64 * 1024 * 1024
    segment_max_age_ms: PositiveInt = 3_600_000


class ReliabilityConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Rate limit, circuit breakers and backpressure: the object `reliability` of `config.json`."""

    rate_limit: RateLimitConfig = DEFAULT_RATE_LIMIT_CONFIG
    circuit_breaker: CircuitBreakerConfig = DEFAULT_CB_CONFIG
    backpressure: BackpressureConfig = DEFAULT_BP_CONFIG


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """All settings of a relay; `storage` cannot change while it is open.

    Without `relay_messages`, as in journals from before it existed, messages of the relay itself
    have no room of their own.
    """

    storage: Literal["maildir", "journal"] = "maildir"
    durability: Literal["fsync", "async"] = "fsync"
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=ancestor_chain_max)] = DEFAULT_MAX_HOPS
    default_ttl_ms: PositiveInt = DEFAULT_TTL_MS
    default_call_budget: PositiveInt = DEFAULT_CALL_BUDGET
    max_payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=payload_max_bytes)] = 1024 * 1024
    max_schedule_ahead_ms: Annotated[int, msgspec.Meta(ge=0, le=wait_max_s * 1000)] = WEEK_MS
    lease_timeout_ms: PositiveInt = 30_000
    close_stuck_after_ms: Annotated[int, msgspec.Meta(ge=0, le=number_max)] = 300_000
    pattern_senders: Literal["all", "authenticated", "none"] = "all"
    max_fanout: Annotated[int, msgspec.Meta(ge=0, le=endpoints_max)] = 0
    max_workers: Annotated[int, msgspec.Meta(ge=1, le=connections_max)] = 64
    watch_files: bool = True
    rate_limit: RateLimitConfig = DEFAULT_RATE_LIMIT_CONFIG
    circuit_breaker: CircuitBreakerConfig = DEFAULT_CB_CONFIG
    backpressure: BackpressureConfig = DEFAULT_BP_CONFIG
    relay_messages: TierLimits | None = None
    qos: QosConfig = QosConfig()
    redelivery: RedeliveryConfig = RedeliveryConfig()
    names: NamesConfig = NamesConfig()
    signals: SignalsConfig = SignalsConfig()
    webhooks: WebhooksConfig = WebhooksConfig()
    housekeeping: HousekeepingConfig = HousekeepingConfig()

    @property
    def reliability(self) -> ReliabilityConfig:
        """Return the groups that `config.json` nests in `reliability`."""
        return ReliabilityConfig(
            rate_limit=self.rate_limit,
            circuit_breaker=self.circuit_breaker,
            backpressure=self.backpressure,
        )

    def with_reliability(self, config: ReliabilityConfig) -> Self:
        """Return these settings with the three groups of `config`."""
        return msgspec.structs.replace(
            self,
            rate_limit=config.rate_limit,
            circuit_breaker=config.circuit_breaker,
            backpressure=config.backpressure,
        )


def validate_settings(settings: Settings) -> Settings:
    """Return `settings` unchanged, or raise `InvalidSettings` naming the field."""
    try:
        document = to_config_document(settings)
    except TypeError as problem:
        raise InvalidSettings(f"invalid settings: {problem}") from None
    try:
        return _merge(Settings(), document)
    except InvalidSettings as problem:
        raise InvalidSettings(f"invalid settings: {problem}") from None


def merge_settings(base: Settings, raw: bytes) -> Settings:
    """Return `base` overridden by the content of a `config.json`, or raise `InvalidSettings`."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidSettings(f"not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise InvalidSettings("expected a JSON object at the top")
    return _merge(base, document)


def _merge(base: Settings, document: dict[str, Any]) -> Settings:
    unknown = find_unknown_key(document, _KEYS)
    if unknown:
        raise InvalidSettings(unknown)
    flat = {name: value for name, value in document.items() if name != "reliability"}
    reliability = document.get("reliability", {})
    if not isinstance(reliability, dict):
        raise InvalidSettings("'reliability' must be an object")
    try:
        return msgspec.convert(
            _overlay(msgspec.to_builtins(base), {**flat, **reliability}), Settings
        )
    except msgspec.ValidationError as problem:
        raise InvalidSettings(str(problem)) from None


def _config_keys() -> KeyTree:
    """Return the keys of `config.json`."""
    flat = keys_of(Settings)
    reliability: KeyTree = {name: flat.pop(name) for name in RELIABILITY}
    return {"reliability": reliability, **flat}


_KEYS = _config_keys()


def to_config_document(settings: Settings) -> dict[str, Any]:
    """`settings` in the shape of `config.json`."""
    flat: dict[str, Any] = msgspec.to_builtins(settings)
    kept = {name: value for name, value in flat.items() if name not in RELIABILITY}
    return {**kept, "reliability": msgspec.to_builtins(settings.reliability)}


def lint(settings: Settings) -> list[str]:
    """Describe valid settings that cannot work as intended."""
    return [*_lint_qos(settings), *_lint_strangers(settings), *_lint_rest(settings)]


def _lint_qos(settings: Settings) -> list[str]:
    notes: list[str] = []
    qos, cap = settings.qos, settings.backpressure
    if not qos.enabled:
        return notes
    for name, limits in (("tier1", qos.tier1), ("tier2", qos.tier2), ("tier3", qos.tier3)):
        if qos.inbox_max_bytes < limits.max_bytes < UNLIMITED:
            notes.append(f"qos.{name}.maxBytes is above qos.inboxMaxBytes and can never be reached")
        if cap.enabled and cap.max_mailbox_size < limits.max_envelopes < UNLIMITED:
            notes.append(
                f"qos.{name}.maxEnvelopes is above backpressure.maxMailboxSize and can never be"
                " reached"
            )
    if not qos.tier1.max_envelopes <= qos.tier2.max_envelopes <= qos.tier3.max_envelopes:
        notes.append("qos: a better known sender may store fewer envelopes than an unknown one")
    if not qos.tier1.max_bytes <= qos.tier2.max_bytes <= qos.tier3.max_bytes:
        notes.append("qos: a better known sender may store fewer bytes than an unknown one")
    if settings.max_payload_bytes > qos.tier3.max_bytes:
        notes.append("maxPayloadBytes is above qos.tier3.maxBytes: no sender can use it")
    return notes


def _lint_strangers(settings: Settings) -> list[str]:
    notes: list[str] = []
    qos, cap = settings.qos, settings.backpressure
    if not qos.enabled:
        return notes
    if qos.overflow == "evict_heaviest":
        notes.append(
            "qos.overflow evict_heaviest: an unknown sender can evict messages of known ones; use"
            " evict_least_known"
        )
    share = qos.strangers
    if share is not None and qos.inbox_max_bytes <= share.max_bytes < UNLIMITED:
        notes.append("qos.strangers.maxBytes: unknown senders together can fill an inbox")
    mailbox_max = cap.max_mailbox_size if cap.enabled else UNLIMITED
    if share is not None and mailbox_max <= share.max_envelopes < UNLIMITED:
        notes.append("qos.strangers.maxEnvelopes: unknown senders together can fill a mailbox")
    return notes


def _lint_rest(settings: Settings) -> list[str]:
    notes: list[str] = []
    breaker = settings.circuit_breaker
    if breaker.half_open_probe_count > breaker.success_to_close:
        notes.append(
            "circuitBreaker.halfOpenProbeCount above successToClose: extra probes are idle"
        )
    if settings.housekeeping.journal_retention_ms < settings.default_ttl_ms:
        notes.append(
            "housekeeping.journalRetentionMs is below defaultTtlMs: live messages keep more"
        )
    names = settings.names
    if names.policy == "open" and names.reserved:
        notes.append('names.reserved has no effect while names.policy is "open"')
    if names.policy == "reserved" and not names.reserved:
        notes.append('names.policy is "reserved", but names.reserved is empty: no name is reserved')
    if settings.lease_timeout_ms > settings.default_ttl_ms:
        notes.append("leaseTimeoutMs is above defaultTtlMs: messages expire while leased")
    if settings.redelivery.first_delay_ms > settings.redelivery.max_delay_ms:
        notes.append("redelivery.firstDelayMs is above redelivery.maxDelayMs and has no effect")
    return notes


def _overlay(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        below = merged.get(name)
        if isinstance(below, dict) and isinstance(value, dict) and name != _MAPPING:
            merged[name] = _overlay(below, value)
        else:
            merged[name] = value
    return merged


_MAPPING = "perSenderOverrides"
"""The one field that is itself a mapping: it replaces the mapping below it as a whole."""
