"""Settings: accepted or rejected as a whole, merged in order, written back as read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.bounds import (
    ancestor_chain_max,
    connections_max,
    endpoints_max,
    payload_max_bytes,
)
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.policy.errors import InvalidSettings
from waypost.policy.names import NamesConfig
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.settings import (
    HousekeepingConfig,
    Settings,
    lint,
    merge_settings,
    to_config_document,
    validate_settings,
)
from waypost.policy.tiers import QosConfig, TierLimits

POSITIVE = st.integers(1, 2**53)
LIMITS = st.builds(TierLimits, st.integers(0, 2**53), st.integers(0, 2**53))
MANY = TierLimits("many", 1)  # type: ignore[arg-type]
ANY_SETTINGS = st.builds(
    Settings,
    storage=st.sampled_from(["maildir", "journal"]),
    durability=st.sampled_from(["fsync", "async"]),
    max_hops=st.integers(1, ancestor_chain_max),
    default_ttl_ms=POSITIVE,
    default_call_budget=POSITIVE,
    max_payload_bytes=st.integers(1, payload_max_bytes),
    lease_timeout_ms=POSITIVE,
    pattern_senders=st.sampled_from(["all", "authenticated", "none"]),
    max_fanout=st.integers(0, endpoints_max),
    max_workers=st.integers(1, connections_max),
    watch_files=st.booleans(),
    rate_limit=st.builds(
        RateLimitConfig,
        enabled=st.booleans(),
        window_secs=POSITIVE,
        max_per_window=POSITIVE,
        per_sender_overrides=st.dictionaries(st.text(max_size=5), POSITIVE, max_size=3),
    ),
    circuit_breaker=st.builds(
        CircuitBreakerConfig,
        enabled=st.booleans(),
        failure_threshold=POSITIVE,
        cooldown_ms=st.integers(1000, 2**53),
        half_open_probe_count=POSITIVE,
        success_to_close=POSITIVE,
    ),
    backpressure=st.builds(
        BackpressureConfig,
        enabled=st.booleans(),
        max_mailbox_size=POSITIVE,
        pressure_warning_at=st.floats(0, 1),
    ),
    relay_messages=st.none() | LIMITS,
    qos=st.builds(
        QosConfig,
        enabled=st.booleans(),
        tier1=LIMITS,
        tier2=LIMITS,
        tier3=LIMITS,
        bidirectional_window_ms=POSITIVE,
        inbox_max_bytes=POSITIVE,
        overflow=st.sampled_from(["evict_least_known", "evict_heaviest", "reject"]),
        strangers=st.none() | LIMITS,
    ),
    names=st.builds(
        NamesConfig,
        policy=st.sampled_from(["open", "reserved", "closed"]),
        reserved=st.lists(st.sampled_from(["agent.a", "agent.ops.>", "*.b"]), max_size=3),
        max_per_key=POSITIVE,
        new_per_minute=POSITIVE,
        new_per_address_minute=POSITIVE,
        unused_expiry_ms=POSITIVE,
    ),
    housekeeping=st.builds(
        HousekeepingConfig, sweep_interval_ms=POSITIVE, segment_max_bytes=st.integers(4096, 2**53)
    ),
)


def read(document: object, base: Settings | None = None) -> Settings:
    return merge_settings(base or Settings(), json.dumps(document).encode())


def leaves(document: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in document.items():
        below = isinstance(value, dict) and name != "perSenderOverrides"
        found += leaves(value, (*path, name)) if below else [(*path, name)]
    return found


def nested(path: tuple[str, ...], value: object) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def value_at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def another(value: Any) -> Any:
    """Return a valid value that differs from the default `value`."""
    words = {"maildir": "journal", "fsync": "async", "evict_least_known": "reject", "all": "none"}
    words["open"] = "closed"
    match value:
        case bool():
            return not value
        case str():
            return words[value]
        case float():
            return value / 2
        case dict():
            return {"agent.a": 3}
        case None:
            return {"maxEnvelopes": 1, "maxBytes": 2}
        case list():
            return ["agent.a"]
        case _:
            return value + 1


LEAVES = leaves(to_config_document(Settings()))


# --- What config.json looks like -----------------------------------------------------------------


def test_the_three_reliability_groups_are_nested_and_use_camel_case() -> None:
    settings = read(
        {
            "maxHops": 3,
            "reliability": {
                "rateLimit": {"maxPerWindow": 7, "perSenderOverrides": {"agent.a": 2}},
                "circuitBreaker": {"cooldownMs": 5000},
                "backpressure": {"pressureWarningAt": 0.5},
            },
            "qos": {"tier1": {"maxEnvelopes": 1}, "overflow": "reject"},
        }
    )
    assert settings.max_hops == 3
    assert settings.rate_limit.max_per_window == 7
    assert settings.rate_limit.per_sender_overrides == {"agent.a": 2}
    assert settings.circuit_breaker.cooldown_ms == 5000
    assert settings.backpressure.pressure_warning_at == 0.5
    assert settings.qos.tier1 == TierLimits(1, 256 * 1024)
    assert settings.qos.overflow == "reject"


@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_a_file_with_one_field_changes_that_field_and_no_other(path: tuple[str, ...]) -> None:
    default = to_config_document(Settings())
    value = another(value_at(default, path))
    changed = to_config_document(read(nested(path, value)))
    differing = [leaf for leaf in LEAVES if value_at(changed, leaf) != value_at(default, leaf)]
    assert differing == [path]
    assert value_at(changed, path) == value


@given(ANY_SETTINGS, ANY_SETTINGS)
def test_settings_survive_being_written_and_merged_into_any_others(
    settings: Settings, base: Settings
) -> None:
    assert merge_settings(base, msgspec.json.encode(to_config_document(settings))) == settings


@given(ANY_SETTINGS)
def test_valid_settings_are_returned_unchanged(settings: Settings) -> None:
    assert validate_settings(settings) == settings


# --- Precedence ----------------------------------------------------------------------------------


def test_the_file_overrides_the_constructor_which_overrides_the_defaults() -> None:
    base = Settings(max_hops=3, lease_timeout_ms=7)
    settings = read({"maxHops": 4}, base)
    assert (settings.max_hops, settings.lease_timeout_ms) == (4, 7)
    assert settings.default_call_budget == Settings().default_call_budget


def test_a_file_that_names_half_a_group_leaves_the_other_half() -> None:
    base = Settings(rate_limit=RateLimitConfig(max_per_window=7, window_secs=9))
    merged = read({"reliability": {"rateLimit": {"windowSecs": 2}}}, base).rate_limit
    assert (merged.max_per_window, merged.window_secs) == (7, 2)


def test_overrides_in_the_file_replace_those_of_the_constructor_as_a_whole() -> None:
    base = Settings(rate_limit=RateLimitConfig(per_sender_overrides={"agent.a": 1}))
    document = {"reliability": {"rateLimit": {"perSenderOverrides": {"agent.b": 2}}}}
    assert read(document, base).rate_limit.per_sender_overrides == {"agent.b": 2}


def test_an_empty_file_document_changes_nothing() -> None:
    base = Settings(max_hops=3)
    assert read({}, base) == read({"reliability": {}}, base) == base


# --- Refused whole -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"maxHops": 0}, "maxHops"),
        ({"maxHops": "5"}, "maxHops"),
        ({"maxHops": True}, "maxHops"),
        ({"maxHops": None}, "maxHops"),
        ({"storage": "floppy"}, "storage"),
        ({"durability": "hope"}, "durability"),
        ({"defaultTtlMs": -1}, "defaultTtlMs"),
        ({"maxPayloadBytes": payload_max_bytes + 1}, "maxPayloadBytes"),
        ({"reliability": {"rateLimit": {"maxPerWindow": 0}}}, "maxPerWindow"),
        ({"reliability": {"rateLimit": {"windowSecs": 0.5}}}, "windowSecs"),
        ({"reliability": {"rateLimit": {"perSenderOverrides": {"a": 0}}}}, "perSenderOverrides"),
        ({"reliability": {"circuitBreaker": {"cooldownMs": 999}}}, "cooldownMs"),
        ({"reliability": {"circuitBreaker": {"successToClose": 0}}}, "successToClose"),
        ({"reliability": {"circuitBreaker": {"halfOpenProbeCount": 0}}}, "halfOpenProbeCount"),
        ({"reliability": {"backpressure": {"pressureWarningAt": 1.01}}}, "pressureWarningAt"),
        ({"reliability": {"backpressure": {"maxMailboxSize": 0}}}, "maxMailboxSize"),
        ({"qos": {"tier2": {"maxBytes": -1}}}, "maxBytes"),
        ({"qos": {"overflow": "burn"}}, "overflow"),
        ({"housekeeping": {"segmentMaxBytes": 4095}}, "segmentMaxBytes"),
        ({"qos": []}, "qos"),
        # Unknown names, and known ones in the wrong place or spelling.
        ({"maxHopps": 5}, "maxHopps"),
        ({"max_hops": 5}, "max_hops"),
        ({"qos": {"tier4": {}}}, "tier4"),
        ({"reliability": {"rateLimit": {"max": 5}}}, "max"),
        ({"reliability": {"retries": {}}}, "reliability"),
        ({"reliability": 5}, "reliability"),
        ({"rateLimit": {"maxPerWindow": 5}}, "rateLimit"),
    ],
)
def test_one_bad_value_rejects_the_whole_file_and_is_named(document: Any, named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        read({"leaseTimeoutMs": 5, **document})


@pytest.mark.parametrize("raw", [b"", b"[]", b"5", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_without_a_json_object_is_rejected(raw: bytes) -> None:
    with pytest.raises(InvalidSettings):
        merge_settings(Settings(), raw)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (Settings(max_hops=0), "maxHops"),
        (Settings(max_hops=ancestor_chain_max + 1), "maxHops"),
        (Settings(default_ttl_ms="1h"), "defaultTtlMs"),  # type: ignore[arg-type]
        (Settings(backpressure=BackpressureConfig(pressure_warning_at=float("nan"))), "pressure"),
        (Settings(circuit_breaker=CircuitBreakerConfig(cooldown_ms=1)), "cooldownMs"),
        (Settings(qos=None), "qos"),  # type: ignore[arg-type]
        (Settings(qos=QosConfig(tier1=MANY)), "maxEnvelopes"),
        (Settings(max_hops=object()), "invalid settings"),  # type: ignore[arg-type]
    ],
)
def test_settings_made_in_python_are_validated_too(settings: Settings, named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        validate_settings(settings)


# --- Lint ----------------------------------------------------------------------------------------


def tiers(first: int, second: int, third: int, **fields: Any) -> Settings:
    """Return quotas of so many envelopes, and of 100 bytes each."""
    limits = [TierLimits(n, n * 100) for n in (first, second, third)]
    qos = QosConfig(enabled=True, tier1=limits[0], tier2=limits[1], tier3=limits[2], **fields)
    return Settings(qos=qos, max_payload_bytes=100)


def test_the_defaults_cause_no_warning() -> None:
    assert lint(Settings()) == []
    assert lint(Settings(qos=QosConfig(enabled=True))) == []


def test_disabled_tiers_cause_no_warning() -> None:
    assert lint(Settings(backpressure=BackpressureConfig(max_mailbox_size=1))) == []


NEVER_BYTES = "qos.{}.maxBytes is above qos.inboxMaxBytes and can never be reached"
NEVER_COUNT = "qos.{}.maxEnvelopes is above backpressure.maxMailboxSize and can never be reached"


@pytest.mark.parametrize(
    ("just_right", "too_far", "notes"),
    [
        (
            tiers(1, 2, 3, inbox_max_bytes=300),
            tiers(1, 2, 3, inbox_max_bytes=299),
            [NEVER_BYTES.format("tier3")],
        ),
        (
            tiers(1, 1, 1, inbox_max_bytes=100),
            tiers(1, 1, 1, inbox_max_bytes=99),
            [NEVER_BYTES.format(name) for name in ("tier1", "tier2", "tier3")],
        ),
        (
            Settings(
                qos=QosConfig(enabled=True), backpressure=BackpressureConfig(max_mailbox_size=500)
            ),
            Settings(
                qos=QosConfig(enabled=True), backpressure=BackpressureConfig(max_mailbox_size=499)
            ),
            [NEVER_COUNT.format("tier3")],
        ),
        (
            Settings(
                qos=QosConfig(enabled=True),
                backpressure=BackpressureConfig(max_mailbox_size=1, enabled=False),
            ),
            Settings(
                qos=QosConfig(enabled=True), backpressure=BackpressureConfig(max_mailbox_size=1)
            ),
            [NEVER_COUNT.format(name) for name in ("tier1", "tier2", "tier3")],
        ),
        (
            Settings(qos=QosConfig(enabled=True, strangers=TierLimits(999, 2**26 - 1))),
            Settings(qos=QosConfig(enabled=True, strangers=TierLimits(1000, 2**26))),
            [
                "qos.strangers.maxBytes: unknown senders together can fill an inbox",
                "qos.strangers.maxEnvelopes: unknown senders together can fill a mailbox",
            ],
        ),
        (
            Settings(qos=QosConfig(enabled=False, overflow="evict_heaviest")),
            Settings(qos=QosConfig(enabled=True, overflow="evict_heaviest")),
            [
                "qos.overflow evict_heaviest: an unknown sender can evict messages of known ones;"
                " use evict_least_known"
            ],
        ),
        (
            Settings(qos=QosConfig(enabled=True, tier2=TierLimits(20, 2**20))),
            Settings(qos=QosConfig(enabled=True, tier2=TierLimits(19, 2**20))),
            ["qos: a better known sender may store fewer envelopes than an unknown one"],
        ),
        (
            Settings(qos=QosConfig(enabled=True, tier3=TierLimits(500, 2 * 2**20))),
            Settings(qos=QosConfig(enabled=True, tier3=TierLimits(500, 2 * 2**20 - 1))),
            ["qos: a better known sender may store fewer bytes than an unknown one"],
        ),
        (
            Settings(max_payload_bytes=10 * 2**20, qos=QosConfig(enabled=True)),
            Settings(max_payload_bytes=10 * 2**20 + 1, qos=QosConfig(enabled=True)),
            ["maxPayloadBytes is above qos.tier3.maxBytes: no sender can use it"],
        ),
        (
            Settings(circuit_breaker=CircuitBreakerConfig(half_open_probe_count=2)),
            Settings(circuit_breaker=CircuitBreakerConfig(half_open_probe_count=3)),
            ["circuitBreaker.halfOpenProbeCount above successToClose: extra probes are idle"],
        ),
        (
            Settings(
                default_ttl_ms=50_000, housekeeping=HousekeepingConfig(journal_retention_ms=50_000)
            ),
            Settings(
                default_ttl_ms=50_001, housekeeping=HousekeepingConfig(journal_retention_ms=50_000)
            ),
            ["housekeeping.journalRetentionMs is below defaultTtlMs: live messages keep more"],
        ),
        (
            Settings(default_ttl_ms=5000, lease_timeout_ms=5000),
            Settings(default_ttl_ms=5000, lease_timeout_ms=5001),
            ["leaseTimeoutMs is above defaultTtlMs: messages expire while leased"],
        ),
    ],
)
def test_each_note_is_made_by_its_combination_and_by_nothing_short_of_it(
    just_right: Settings, too_far: Settings, notes: list[str]
) -> None:
    assert lint(just_right) == []
    assert lint(too_far) == notes


@given(ANY_SETTINGS)
def test_any_valid_settings_can_be_linted(settings: Settings) -> None:
    assert all(isinstance(note, str) for note in lint(settings))
