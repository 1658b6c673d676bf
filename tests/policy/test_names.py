"""Names: which need the operator, how many may be bound, and when an unused one expires."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.access import AccessRule, AccessRules, validate_rule
from waypost.policy.bounds import crowded_identities_max, identities_max
from waypost.policy.errors import InvalidRule, InvalidSettings, InvalidSubject
from waypost.policy.names import (
    CROWDED_EXPIRY_MS,
    WINDOW_MS,
    NamesConfig,
    NewNames,
    is_expired,
    is_loopback,
    needs_operator,
    network_of,
)
from waypost.policy.settings import Settings, lint, merge_settings

OPS = ["agent.ops.>", "agent.web"]
KEY, OTHER = "A" * 43, "B" * 42 + "A"


@pytest.mark.parametrize(
    ("policy", "subject", "needed"),
    [
        ("open", "agent.ops.a", False),
        ("reserved", "agent.ops.a", True),
        ("reserved", "agent.ops.a.b", True),
        ("reserved", "agent.ops", False),
        ("reserved", "agent.opsy.a", False),
        ("reserved", "agent.web", True),
        ("reserved", "agent.web.a", False),
        ("closed", "agent.anything", True),
    ],
)
def test_the_policy_decides_which_names_need_the_operator(
    policy: str, subject: str, needed: bool
) -> None:
    config = NamesConfig(policy=policy, reserved=OPS)  # type: ignore[arg-type]
    assert needs_operator(subject, config) is needed


def test_an_invalid_pattern_is_an_invalid_setting() -> None:
    with pytest.raises(InvalidSettings, match="names"):
        merge_settings(Settings(), b'{"names": {"reserved": ["agent..ops"]}}')
    with pytest.raises(InvalidSubject):
        NamesConfig(reserved=["a.>.b"])


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (NamesConfig(reserved=OPS), "no effect"),
        (NamesConfig(policy="reserved"), "no name is reserved"),
    ],
)
def test_half_a_reservation_is_noted(names: NamesConfig, note: str) -> None:
    assert [one for one in lint(Settings(names=names)) if note in one]
    whole = NamesConfig(policy="reserved", reserved=OPS)
    assert not [one for one in lint(Settings(names=whole)) if "names." in one]


@given(
    binds=st.lists(
        st.tuples(st.integers(0, 20_000), st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1"])),
        max_size=60,
    )
)
def test_no_sequence_binds_more_names_in_a_minute_than_the_limits(
    binds: list[tuple[int, str]],
) -> None:
    config = NamesConfig(new_per_minute=5, new_per_address_minute=2)
    new, now_ms, bound = NewNames(), 0, list[tuple[int, str]]()
    for pause_ms, address in binds:
        now_ms += pause_ms
        verdict = new.check(0, address, config, now_ms)
        recent = [(at, by) for at, by in bound if at > now_ms - WINDOW_MS]
        mine = [at for at, by in recent if by == address]
        assert verdict.allowed == (len(recent) < 5 and len(mine) < 2)
        if verdict.allowed:
            new.record(address, now_ms)
            bound.append((now_ms, address))
        else:
            later = new.check(0, address, config, now_ms + verdict.retry_after_ms)
            assert later.allowed or later.retry_after_ms


def test_a_key_holds_no_more_names_than_allowed() -> None:
    config = NamesConfig(max_per_key=3)
    assert NewNames().check(2, "10.0.0.1", config, 0).allowed
    rejected = NewNames().check(3, "10.0.0.1", config, 0)
    assert (rejected.allowed, rejected.retry_after_ms) == (False, 0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:0:ffff::1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        ("127.0.0.1", "127.9.9.9", True),
        ("127.0.0.1", "::1", True),
        ("::ffff:127.0.0.1", "::1", True),
        ("a socket", "another socket", False),
    ],
)
def test_addresses_of_one_network_count_together(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


def test_an_unused_name_expires_sooner_when_there_is_little_room() -> None:
    config = NamesConfig(unused_expiry_ms=2 * CROWDED_EXPIRY_MS)
    assert not is_expired(0, 2 * CROWDED_EXPIRY_MS - 1, 1, config)
    assert is_expired(0, 2 * CROWDED_EXPIRY_MS, 1, config)
    crowded = crowded_identities_max + 1
    assert not is_expired(0, CROWDED_EXPIRY_MS - 1, crowded, config)
    assert is_expired(0, CROWDED_EXPIRY_MS, crowded, config)
    assert crowded <= identities_max


# --- Access rules that name a key ----------------------------------------------------------------


def test_a_rule_with_a_key_matches_that_key_only() -> None:
    rules = AccessRules(
        [
            AccessRule("agent.web", "agent.b", "allow", 2, KEY),
            AccessRule(">", "agent.b", "deny", 1),
        ]
    )
    assert rules.name_keys
    assert rules.check_access("agent.web", "agent.b", KEY).allowed
    assert not rules.check_access("agent.web", "agent.b", OTHER).allowed
    assert not rules.check_access("agent.web", "agent.b").allowed
    assert not rules.check_access("agent.other", "agent.b", KEY).allowed


def test_rules_of_two_keys_and_of_none_are_three_rules() -> None:
    rules = AccessRules()
    for key in (KEY, OTHER, KEY):
        rules = rules.with_rule(AccessRule("agent.a", ">", "deny", 0, key))
    rules = rules.with_rule(AccessRule("agent.a", ">", "deny"))
    assert len(rules.list_rules()) == 3
    assert len(rules.without_rule("agent.a", ">", KEY).list_rules()) == 2
    assert len(rules.without_rule("agent.a", ">").list_rules()) == 2
    assert len(rules.without_rule("agent.a", ">", "C" * 43).list_rules()) == 3


@pytest.mark.parametrize("key", ["", "A" * 42, "A" * 44, "A" * 42 + "B", "A" * 42 + "=", "é" * 43])
def test_a_malformed_key_is_rejected(key: str) -> None:
    with pytest.raises(InvalidRule, match="fromKey"):
        validate_rule(AccessRule("agent.a", ">", "deny", 0, key))


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"]
)
def test_a_loopback_host_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "loopback", "0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip"]
)
def test_any_other_host_is_not_this_machine(host: str) -> None:
    assert not is_loopback(host)
