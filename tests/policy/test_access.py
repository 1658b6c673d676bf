"""Access rules: the matching rule of highest priority decides; without one, access is allowed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.access import (
    DENY_ALL,
    AccessResult,
    AccessRule,
    AccessRules,
    parse_rules,
    validate_rule,
)
from waypost.policy.bounds import access_rules_max
from waypost.policy.errors import AccessDenied, InvalidRule, WaypostError
from waypost.policy.subjects import matches_pattern

TOKENS = st.sampled_from(["a", "b"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(".".join)
PATTERNS = st.sampled_from([">", "*", "a", "b", "a.*", "a.>", "*.b", "b.>", "a.b", "*.*.a"])
RULES = st.builds(
    AccessRule, PATTERNS, PATTERNS, st.sampled_from(["allow", "deny"]), st.integers(-2, 2)
)


def rules_of(*rules: AccessRule) -> AccessRules:
    return AccessRules(rules)


def naive_verdict(rules: list[AccessRule], from_: str, to: str) -> AccessResult:
    """Decide by the matching rule with the highest priority, then the oldest."""
    matching = [
        (-rule.priority, age, rule)
        for age, rule in enumerate(rules)
        if matches_pattern(from_, rule.from_) and matches_pattern(to, rule.to)
    ]
    if not matching:
        return AccessResult(True)
    rule = min(matching, key=lambda candidate: candidate[:2])[2]
    return AccessResult(rule.action == "allow", rule)


# --- Verdicts ------------------------------------------------------------------------------------


def test_without_rules_everyone_may_reach_everyone() -> None:
    assert rules_of().check_access("a", "b") == AccessResult(True, None)


def test_a_rule_that_matches_neither_side_decides_nothing() -> None:
    rules = rules_of(AccessRule("a", "b", "deny"))
    assert rules.check_access("b", "a") == AccessResult(True, None)


def test_an_allow_rule_permits_and_is_named() -> None:
    allow = AccessRule("a", "b", "allow")
    assert rules_of(allow).check_access("a", "b") == AccessResult(True, allow)


def test_a_deny_rule_blocks_and_is_named() -> None:
    deny = AccessRule("a", "b", "deny")
    assert rules_of(deny).check_access("a", "b") == AccessResult(False, deny)


def test_a_rule_needs_both_sides_to_match() -> None:
    rules = rules_of(AccessRule("a", "b", "deny"))
    assert rules.check_access("a", "c").allowed
    assert rules.check_access("c", "b").allowed


def test_the_higher_priority_is_tried_first_whatever_the_order_of_addition() -> None:
    deny, allow = AccessRule("a", "b", "deny", 1), AccessRule("a", ">", "allow", 2)
    assert rules_of(deny, allow).check_access("a", "b").matched_rule == allow
    assert rules_of(allow, deny).check_access("a", "b").matched_rule == allow


def test_among_equal_priorities_the_one_added_first_decides() -> None:
    deny, allow = AccessRule("a", "b", "deny"), AccessRule("a", ">", "allow")
    assert rules_of(deny, allow).check_access("a", "b").matched_rule == deny
    assert rules_of(allow, deny).check_access("a", "b").matched_rule == allow


def test_priorities_may_be_negative() -> None:
    rules = rules_of(AccessRule(">", ">", "deny", -1), AccessRule("a", ">", "allow"))
    assert rules.check_access("a", "b").allowed
    assert not rules.check_access("b", "a").allowed


def test_wildcards_work_on_both_sides() -> None:
    rules = rules_of(AccessRule("guest.*", "agent.secret.>", "deny"))
    assert not rules.check_access("guest.one", "agent.secret.keys").allowed
    assert rules.check_access("guest.one.two", "agent.secret.keys").allowed
    assert rules.check_access("guest.one", "agent.secret").allowed


def test_the_deny_all_rules_deny_everything() -> None:
    assert not AccessRules(DENY_ALL).check_access("a.b.c", "d").allowed


@given(st.lists(RULES, max_size=8), SUBJECTS, SUBJECTS)
def test_verdicts_agree_with_the_naive_reading(
    rules: list[AccessRule], from_: str, to: str
) -> None:
    assert AccessRules(rules).check_access(from_, to) == naive_verdict(rules, from_, to)


# --- Adding and removing -------------------------------------------------------------------------


def test_rules_are_listed_in_the_order_in_which_they_are_tried() -> None:
    low, high, second = (
        AccessRule("a", "a", "deny", 0),
        AccessRule("a", "b", "deny", 5),
        AccessRule("b", "a", "deny", 0),
    )
    assert rules_of(low, high, second).list_rules() == [high, low, second]


def test_changing_the_list_does_not_change_the_rules() -> None:
    rules = rules_of(AccessRule("a", "b", "deny"))
    rules.list_rules().clear()
    assert len(rules.list_rules()) == 1


def test_adding_a_rule_leaves_the_old_set_as_it_was() -> None:
    before = rules_of()
    after = before.with_rule(AccessRule("a", "b", "deny"))
    assert before.check_access("a", "b").allowed
    assert not after.check_access("a", "b").allowed
    assert (bool(before), bool(after)) == (False, True)


def test_a_rule_of_the_same_pair_and_priority_replaces_the_old_one() -> None:
    rules = rules_of(AccessRule("a", "b", "deny", 9)).with_rule(AccessRule("a", "b", "allow", 9))
    assert rules.list_rules() == [AccessRule("a", "b", "allow", 9)]


def test_of_two_rules_of_one_pair_the_higher_priority_decides() -> None:
    low, high = AccessRule("a", "b", "allow", 1), AccessRule("a", "b", "deny", 9)
    rules = rules_of(high).with_rule(low)
    assert rules.list_rules() == [high, low]
    assert rules.check_access("a", "b").matched_rule == high
    assert rules.without_rule("a", "b", priority=9).check_access("a", "b").matched_rule == low


def test_removing_a_pair_takes_its_rules_of_all_priorities_or_of_one() -> None:
    low, high, other = (
        AccessRule("a", "b", "allow", -1),
        AccessRule("a", "b", "deny", 9),
        AccessRule("a", "c", "deny", 9),
    )
    rules = rules_of(low, high, other)
    assert rules.without_rule("a", "b").list_rules() == [other]
    assert rules.without_rule("a", "b", priority=-1).list_rules() == [high, other]
    assert rules.without_rule("a", "b", priority=0).list_rules() == [high, other, low]


def test_removing_a_rule_takes_exactly_its_pair() -> None:
    kept = [AccessRule("a", ">", "deny"), AccessRule("b", "a", "deny")]
    rules = rules_of(*kept, AccessRule("a", "b", "deny")).without_rule("a", "b")
    assert rules.list_rules() == kept


def test_removing_a_rule_that_is_not_there_changes_nothing() -> None:
    rules = rules_of(AccessRule("a", "b", "deny"))
    assert rules.without_rule("x", "y").list_rules() == rules.list_rules()


def test_the_number_of_rules_is_bounded() -> None:
    full = AccessRules(AccessRule(f"agent.{n}", ">", "deny") for n in range(access_rules_max))
    with pytest.raises(InvalidRule, match="too many access rules"):
        full.with_rule(AccessRule("one", "more", "deny"))


def test_a_full_set_accepts_a_replacement() -> None:
    full = AccessRules(AccessRule(f"agent.{n}", ">", "deny") for n in range(access_rules_max))
    replaced = full.with_rule(AccessRule("agent.0", ">", "allow"))
    assert replaced.check_access("agent.0", "a").allowed


@pytest.mark.parametrize(
    "rule",
    [
        AccessRule("a..b", ">", "deny"),
        AccessRule("a", ">.b", "deny"),
        AccessRule("", "b", "deny"),
        AccessRule("a", "b", "maybe"),  # type: ignore[arg-type]
        AccessRule("a", "b", "deny", 1.5),  # type: ignore[arg-type]
        AccessRule("a", "b", "deny", 2**53 + 1),
        AccessRule(None, "b", "deny"),  # type: ignore[arg-type]
        AccessRule(object(), "b", "deny"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_cannot_be_taken_is_rejected(rule: AccessRule) -> None:
    with pytest.raises(InvalidRule, match="invalid access rule"):
        validate_rule(rule)
    with pytest.raises(InvalidRule):
        rules_of().with_rule(rule)


# --- The rules as a document ---------------------------------------------------------------------


def test_a_rule_is_written_with_from_and_to() -> None:
    raw = b'[{"from": "a.*", "to": ">", "action": "deny", "priority": 3}]'
    assert parse_rules(raw) == [AccessRule("a.*", ">", "deny", 3)]


def test_a_rule_without_priority_has_priority_zero() -> None:
    assert parse_rules(b'[{"from": "a", "to": "b", "action": "deny"}]')[0].priority == 0


def test_an_empty_list_is_a_list() -> None:
    assert parse_rules(b"[]") == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[1]",
        b"[",
        b"\xff",
        b"null",
        b"[" * 100_000,
        b'[{"from": "a", "to": "b"}]',
        b'[{"from_": "a", "to": "b", "action": "deny"}]',
        b'[{"from": "a", "to": "b", "action": "DENY"}]',
        b'[{"from": "a", "to": "b", "action": "deny", "priority": "high"}]',
        b'[{"from": "a", "to": "b", "action": "deny", "until": 5}]',
        b'[{"from": "a", "to": "b", "action": "deny"}, {"from": "", "to": "b", "action": "deny"}]',
    ],
)
def test_one_bad_entry_invalidates_the_whole_document(raw: bytes) -> None:
    with pytest.raises(InvalidRule):
        parse_rules(raw)


def test_a_document_with_too_many_rules_is_rejected() -> None:
    entry = b'{"from": "a", "to": "b", "action": "deny"}'
    assert len(parse_rules(b"[" + b",".join([entry] * access_rules_max) + b"]")) == access_rules_max
    with pytest.raises(InvalidRule, match="too many access rules"):
        parse_rules(b"[" + b",".join([entry] * (access_rules_max + 1)) + b"]")


@given(st.lists(RULES, max_size=5))
def test_rules_survive_being_written_and_read(rules: list[AccessRule]) -> None:
    assert parse_rules(msgspec.json.encode(rules)) == rules


# --- The exception -------------------------------------------------------------------------------


def test_access_denied_names_sender_and_subject() -> None:
    denied = AccessDenied("agent.a", "agent.b")
    assert (denied.sender, denied.subject) == ("agent.a", "agent.b")
    assert "agent.a" in str(denied)
    assert "agent.b" in str(denied)
    assert isinstance(denied, WaypostError)
