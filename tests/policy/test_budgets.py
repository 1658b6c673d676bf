"""Budgets: checked in order, spent by deliveries, never enlarged."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.bounds import ancestor_chain_max
from waypost.policy.budgets import (
    Budget,
    BudgetCut,
    budget_cut,
    create_default_budget,
    enforce_budget,
    overdrawn,
    shrink,
    spend,
    without_ancestors,
)
from waypost.policy.errors import InvalidMessage

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
NAMES = [f"agent.{name}" for name in "abcdef"]


class Message(msgspec.Struct):
    """The minimum that has a budget."""

    budget: Budget


def message(**overrides: object) -> Message:
    return Message(create_default_budget(NOW, **overrides))


CHAINS = st.lists(st.sampled_from(NAMES), max_size=4, unique=True).map(tuple)
BUDGETS = st.builds(
    Budget,
    hop_count=st.integers(0, 6),
    max_hops=st.integers(1, 6),
    ancestor_chain=CHAINS,
    ttl=st.integers(NOW - 5, NOW + 5),
    call_budget_remaining=st.integers(0, 4),
)
WISHES = BUDGETS | st.fixed_dictionaries(
    {},
    optional={
        "hop_count": st.integers(0, 9),
        "max_hops": st.integers(1, 9),
        "ancestor_chain": CHAINS | st.lists(st.sampled_from(NAMES), max_size=4),
        "ttl": st.integers(NOW - 9, NOW + 9),
        "call_budget_remaining": st.integers(0, 9),
    },
)


def is_no_larger(after: Budget, before: Budget) -> bool:
    return (
        after.hop_count >= before.hop_count
        and after.max_hops <= before.max_hops
        and after.ancestor_chain[: len(before.ancestor_chain)] == before.ancestor_chain
        and after.ttl <= before.ttl
        and after.call_budget_remaining <= before.call_budget_remaining
    )


# --- A fresh budget ------------------------------------------------------------------------------


def test_a_new_budget_has_five_hops_one_hour_and_ten_calls() -> None:
    assert create_default_budget(NOW) == Budget(
        hop_count=0, max_hops=5, ancestor_chain=(), ttl=NOW + HOUR_MS, call_budget_remaining=10
    )


def test_an_override_changes_its_field_and_no_other() -> None:
    budget = create_default_budget(NOW, max_hops=2, ancestor_chain=["agent.a"])
    assert budget == Budget(max_hops=2, ancestor_chain=("agent.a",), ttl=NOW + HOUR_MS)


def test_an_overridden_expiry_is_an_instant_not_a_duration() -> None:
    assert create_default_budget(NOW, ttl=7).ttl == 7


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hop_count", -1),
        ("max_hops", 0),
        ("call_budget_remaining", -1),
        ("hop_count", "1"),
        ("max_hops", 2.5),
        ("ttl", None),
        ("ttl", float("inf")),
        ("call_budget_remaining", True),
        ("ancestor_chain", "agent.a"),
        ("ancestor_chain", [1]),
        ("hops", 1),
        ("hopCount", 1),
    ],
)
def test_an_invalid_budget_is_rejected(field: str, value: object) -> None:
    with pytest.raises(InvalidMessage, match="invalid budget"):
        create_default_budget(NOW, **{field: value})
    with pytest.raises(InvalidMessage, match="invalid budget"):
        shrink(create_default_budget(NOW), {field: value})


def test_a_chain_of_ancestors_has_a_longest_length() -> None:
    chain = [f"agent.{number}" for number in range(ancestor_chain_max)]
    assert len(create_default_budget(NOW, ancestor_chain=chain).ancestor_chain) == len(chain)
    with pytest.raises(InvalidMessage, match="ancestor chain"):
        create_default_budget(NOW, ancestor_chain=[*chain, "agent.more"])


# --- The four checks -----------------------------------------------------------------------------


def test_a_message_that_used_all_its_hops_is_rejected() -> None:
    result = enforce_budget(message(hop_count=5), "agent.a", NOW)
    assert not result.allowed
    assert result.reason == "max hops exceeded (5/5)"
    assert result.updated_budget is None


def test_a_message_past_its_hops_is_rejected() -> None:
    result = enforce_budget(message(hop_count=7, max_hops=3), "agent.a", NOW)
    assert result.reason == "max hops exceeded (7/3)"


def test_the_last_hop_is_still_a_hop() -> None:
    assert enforce_budget(message(hop_count=4), "agent.a", NOW).allowed


def test_an_endpoint_already_visited_is_a_cycle() -> None:
    result = enforce_budget(message(ancestor_chain=["agent.a", "agent.b"]), "agent.a", NOW)
    assert not result.allowed
    assert result.reason == "cycle detected: agent.a already in chain"


def test_an_ancestor_is_compared_whole_and_with_its_case() -> None:
    assert enforce_budget(message(ancestor_chain=["agent.ab", "Agent.a"]), "agent.a", NOW).allowed


def test_a_message_past_its_expiry_is_rejected() -> None:
    result = enforce_budget(message(ttl=NOW), "agent.a", NOW + 1)
    assert not result.allowed
    assert result.reason == "message expired (TTL)"


def test_a_message_at_the_instant_of_its_expiry_is_alive() -> None:
    assert enforce_budget(message(ttl=NOW), "agent.a", NOW).allowed


def test_a_message_without_calls_left_is_rejected() -> None:
    result = enforce_budget(message(call_budget_remaining=0), "agent.a", NOW)
    assert not result.allowed
    assert result.reason == "call budget exhausted"


def test_the_last_call_is_still_a_call() -> None:
    assert enforce_budget(message(call_budget_remaining=1), "agent.a", NOW).allowed


FAILURES = {
    "max hops exceeded (5/5)": {"hop_count": 5},
    "cycle detected: agent.a already in chain": {"ancestor_chain": ("agent.a",)},
    "message expired (TTL)": {"ttl": NOW - 1},
    "call budget exhausted": {"call_budget_remaining": 0},
}


@pytest.mark.parametrize("first", range(len(FAILURES)))
def test_of_several_failures_the_earlier_check_is_named(first: int) -> None:
    reasons = list(FAILURES)
    failing = {
        name: value for reason in reasons[first:] for name, value in FAILURES[reason].items()
    }
    assert enforce_budget(message(**failing), "agent.a", NOW).reason == reasons[first]


@given(BUDGETS, st.sampled_from(NAMES))
def test_enforcing_is_checking_and_then_spending(budget: Budget, endpoint: str) -> None:
    result = enforce_budget(Message(budget), endpoint, NOW)
    reason = overdrawn(budget, endpoint, NOW)
    assert (result.allowed, result.reason) == (reason is None, reason)
    assert result.updated_budget == (spend(budget, endpoint) if reason is None else None)


# --- Spending ------------------------------------------------------------------------------------


def test_a_delivery_spends_a_hop_and_a_call_and_adds_an_ancestor() -> None:
    before = message(hop_count=1, ancestor_chain=["agent.x"], call_budget_remaining=3)
    after = enforce_budget(before, "agent.a", NOW).updated_budget
    assert after == Budget(
        hop_count=2,
        max_hops=5,
        ancestor_chain=("agent.x", "agent.a"),
        ttl=NOW + HOUR_MS,
        call_budget_remaining=2,
    )


def test_judging_a_message_does_not_change_it() -> None:
    judged = message()
    enforce_budget(judged, "agent.a", NOW)
    assert judged == message()


def test_a_message_passed_around_stops_after_its_hops() -> None:
    budget = create_default_budget(NOW, max_hops=3)
    visited = 0
    while overdrawn(budget, f"agent.{visited}", NOW) is None:
        budget = spend(budget, f"agent.{visited}")
        visited += 1
    assert visited == 3


# --- Wishes --------------------------------------------------------------------------------------


def test_a_wish_for_less_is_granted() -> None:
    wish = {"max_hops": 2, "ttl": NOW + 5, "call_budget_remaining": 1, "hop_count": 1}
    assert shrink(create_default_budget(NOW), wish) == Budget(
        hop_count=1, max_hops=2, ttl=NOW + 5, call_budget_remaining=1
    )


def test_a_wish_for_more_is_ignored() -> None:
    allowance = create_default_budget(NOW, hop_count=2, max_hops=3, call_budget_remaining=1)
    wish = {"max_hops": 9, "ttl": NOW * 2, "call_budget_remaining": 99, "hop_count": 0}
    assert shrink(allowance, wish) == allowance


def test_no_request_removes_an_ancestor() -> None:
    allowance = create_default_budget(NOW, ancestor_chain=["agent.a"])
    assert shrink(allowance, {"ancestor_chain": []}).ancestor_chain == ("agent.a",)


def test_requested_ancestors_follow_the_known_ones_each_once() -> None:
    allowance = create_default_budget(NOW, ancestor_chain=["agent.a"])
    wish = {"ancestor_chain": ["agent.b", "agent.a", "agent.b"]}
    assert shrink(allowance, wish).ancestor_chain == ("agent.a", "agent.b")


def test_requested_ancestors_cannot_make_the_chain_too_long() -> None:
    half = ancestor_chain_max // 2 + 1
    allowance = create_default_budget(NOW, ancestor_chain=[f"agent.{n}" for n in range(half)])
    with pytest.raises(InvalidMessage, match="ancestor chain"):
        shrink(allowance, {"ancestor_chain": [f"other.{n}" for n in range(half)]})


def test_an_empty_wish_changes_nothing() -> None:
    assert shrink(message().budget, {}) == message().budget


@given(BUDGETS, WISHES)
def test_shrinking_twice_by_the_same_budget_is_shrinking_once(
    allowance: Budget, wish: Budget | dict[str, object]
) -> None:
    once = shrink(allowance, wish)
    assert shrink(once, wish) == once


@given(BUDGETS, st.lists(WISHES | st.sampled_from(NAMES), max_size=12))
def test_no_sequence_of_requests_and_deliveries_enlarges_a_budget(
    budget: Budget, steps: list[Budget | dict[str, object] | str]
) -> None:
    for step in steps:
        if not isinstance(step, str):
            after = shrink(budget, step)
        elif overdrawn(budget, step, NOW) is None:
            after = spend(budget, step)
        else:
            continue
        assert is_no_larger(after, budget)
        budget = after
    assert budget.call_budget_remaining >= 0


@given(BUDGETS, WISHES, st.sampled_from(NAMES))
def test_a_rejected_budget_stays_rejected_whatever_is_requested(
    budget: Budget, wish: Budget | dict[str, object], endpoint: str
) -> None:
    if overdrawn(budget, endpoint, NOW) is not None:
        assert overdrawn(shrink(budget, wish), endpoint, NOW) is not None


def test_an_agent_cannot_request_ancestors() -> None:
    wish = without_ancestors({"max_hops": 2, "ancestor_chain": ["agent.helper"]})
    assert wish == {"max_hops": 2}


# --- What was cut --------------------------------------------------------------------------------


def test_what_was_cut_has_the_fields_that_asked_for_more() -> None:
    granted = Budget(hop_count=2, max_hops=5, ttl=NOW, call_budget_remaining=3)
    wish = {"hop_count": 1, "max_hops": 6, "ttl": NOW + 1, "call_budget_remaining": 4}
    everything = BudgetCut(hop_count=2, max_hops=5, ttl=NOW, call_budget_remaining=3)
    assert budget_cut(wish, granted) == everything
    assert budget_cut({"max_hops": 6, "ttl": NOW}, granted) == BudgetCut(max_hops=5)
    assert budget_cut({"max_hops": 4}, granted) is msgspec.UNSET


@given(BUDGETS, WISHES)
def test_nothing_was_cut_exactly_if_the_wish_was_granted(
    allowance: Budget, wish: Budget | dict[str, object]
) -> None:
    asked = msgspec.structs.asdict(wish) if isinstance(wish, Budget) else dict(wish)
    asked.pop("ancestor_chain", None)
    granted = shrink(allowance, wish)
    got = msgspec.structs.asdict(granted)
    differing = {name: got[name] for name in asked if asked[name] != got[name]}
    found = budget_cut(wish, granted)
    assert ({} if found is msgspec.UNSET else msgspec.to_builtins(found)) == differing
