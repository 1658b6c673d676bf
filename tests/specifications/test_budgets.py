"""Budgets: enforced for each delivery, and only ever smaller."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.relay.observing import send
from waypost import Budget, InvalidMessage, Relay, create_default_budget, enforce_budget
from waypost.testing import ManualClock

NOW_MS = 1_700_000_000_000
FEW = settings(max_examples=15)
"""Each example opens a relay."""


class Sent(msgspec.Struct):
    """What has a budget, as an envelope does."""

    budget: Budget


def enforced(now_ms: int = NOW_MS, **fields: Any) -> Any:
    """Return the result of a delivery to agent.x with a budget that differs in `fields`."""
    return enforce_budget(Sent(create_default_budget(NOW_MS, **fields)), "agent.x", now_ms)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"hop_count": 5}, "max hops exceeded (5/5)"),
        ({"hop_count": 2, "max_hops": 2}, "max hops exceeded (2/2)"),
        ({"ancestor_chain": ("agent.x",)}, "cycle detected: agent.x already in chain"),
        ({"ttl": NOW_MS - 1}, "message expired (TTL)"),
        ({"call_budget_remaining": 0}, "call budget exhausted"),
    ],
)
def test_a_delivery_over_budget_is_rejected_with_its_reason(
    fields: dict[str, Any], reason: str
) -> None:
    result = enforced(**fields)
    assert (result.allowed, result.reason, result.updated_budget) == (False, reason, None)


@pytest.mark.parametrize(
    "fields", [{"hop_count": 4}, {"ttl": NOW_MS}, {"call_budget_remaining": 1}]
)
def test_the_last_hop_the_last_instant_and_the_last_call_may_be_used(
    fields: dict[str, Any],
) -> None:
    assert enforced(**fields).allowed


def test_of_several_failures_the_earlier_check_is_named() -> None:
    failures = {
        "hop_count": 9,
        "ancestor_chain": ("agent.x",),
        "ttl": NOW_MS - 1,
        "call_budget_remaining": 0,
    }
    found = []
    while failures:
        found.append(str(enforced(**failures).reason).split()[0])
        failures.pop(next(iter(failures)))
    assert found == ["max", "cycle", "message", "call"]


def test_a_delivery_uses_a_hop_and_a_call_and_adds_the_endpoint() -> None:
    before = create_default_budget(NOW_MS, ancestor_chain=("agent.a",), hop_count=1)
    after = enforce_budget(Sent(before), "agent.x", NOW_MS).updated_budget
    assert after == Budget(
        hop_count=2,
        max_hops=5,
        ancestor_chain=("agent.a", "agent.x"),
        ttl=before.ttl,
        call_budget_remaining=9,
    )


def test_a_new_budget_has_five_hops_one_hour_and_ten_calls() -> None:
    assert create_default_budget(NOW_MS) == Budget(
        hop_count=0,
        max_hops=5,
        ancestor_chain=(),
        ttl=NOW_MS + 3_600_000,
        call_budget_remaining=10,
    )
    assert create_default_budget(NOW_MS, max_hops=2).max_hops == 2


@pytest.mark.parametrize(
    "fields",
    [{"hop_count": -1}, {"max_hops": 0}, {"call_budget_remaining": -1}, {"ttl": "soon"}, {"x": 1}],
)
def test_an_invalid_budget_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        create_default_budget(NOW_MS, **fields)


@FEW
@given(
    asked=st.fixed_dictionaries(
        {},
        optional={
            "hop_count": st.integers(0, 9),
            "max_hops": st.integers(1, 99),
            "ttl": st.integers(NOW_MS, NOW_MS + 10**9),
            "call_budget_remaining": st.integers(0, 99),
        },
    )
)
async def test_whatever_callers_request_a_budget_only_shrinks(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, int]
) -> None:
    async with Relay(tmp_path_factory.mktemp("data"), clock=ManualClock()) as relay:
        for subject in ("agent.a", "agent.c"):
            relay.register_endpoint(subject)
        if not (await send(relay, budget=asked)).delivered_to:
            return
        (first,) = await relay.lease("agent.a")
        assert is_within(first.budget, create_default_budget(NOW_MS))
        options = {"sender": "agent.a", "parent": first, "budget": asked}
        if (await relay.publish("agent.c", 2, **options)).delivered_to:
            (second,) = await relay.lease("agent.c")
            assert is_within(second.budget, first.budget)


def is_within(budget: Budget, allowance: Budget) -> bool:
    return (
        budget.max_hops - budget.hop_count < allowance.max_hops - allowance.hop_count
        and budget.ttl <= allowance.ttl
        and budget.call_budget_remaining < allowance.call_budget_remaining
        and set(budget.ancestor_chain) > set(allowance.ancestor_chain)
    )


async def test_hops_time_and_calls_of_a_new_budget_are_settings(start, clock: ManualClock) -> None:
    relay = await start(max_hops=3, default_ttl_ms=60_000, default_call_budget=2)
    relay.register_endpoint("agent.a")
    await send(relay)
    (envelope,) = await relay.lease("agent.a")
    budget = envelope.budget
    assert (budget.max_hops, budget.call_budget_remaining) == (3, 1)
    assert budget.ttl == clock() // 1000 + 60_000
