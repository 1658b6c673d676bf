"""Budgets against loops and runaway cost.

Rule 1  A budget only ever shrinks: hops and ancestors grow towards their limit, time and calls
        fall towards zero, and no caller can argue any of them back.
Rule 2  Checks run in this order, and the first failure wins: hops, cycle, expiry, calls.
Rule 3  `now == ttl` is still alive.

This module does not know what a message says or whether anyone is there to read it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from waypost.policy.bounds import ancestor_chain_max, number_max
from waypost.policy.errors import InvalidMessage, InvalidSubject
from waypost.policy.subjects import is_subject, validate_subject

DEFAULT_MAX_HOPS = 5
DEFAULT_TTL_MS = 3_600_000
DEFAULT_CALL_BUDGET = 10


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a message may still do. `ttl` is the instant of expiry, in ms since the epoch."""

    hop_count: int = 0
    max_hops: int = DEFAULT_MAX_HOPS
    ancestor_chain: tuple[str, ...] = ()
    ttl: int
    call_budget_remaining: int = DEFAULT_CALL_BUDGET


class HasBudget(Protocol):
    """Anything that carries a budget, such as an envelope."""

    @property
    def budget(self) -> Budget: ...


class BudgetResult(msgspec.Struct, frozen=True, gc=False):
    """`reason` when refused, `updated_budget` (as delivered) when allowed."""

    allowed: bool
    reason: str | None = None
    updated_budget: Budget | None = None


def create_default_budget(now_ms: int, **overrides: object) -> Budget:
    """A fresh budget: no hops yet, 5 at most, 1 h to live, 10 calls; fields by name override."""
    fields: dict[str, object] = {"ttl": now_ms + DEFAULT_TTL_MS, **overrides}
    return _checked(fields)


def enforce_budget(envelope: HasBudget, endpoint: str, now_ms: int) -> BudgetResult:
    """Judge a delivery to `endpoint` and, if allowed, give the budget it is delivered with."""
    reason = overdrawn(envelope.budget, endpoint, now_ms)
    if reason is not None:
        return BudgetResult(False, reason=reason)
    return BudgetResult(True, updated_budget=spend(envelope.budget, endpoint))


def overdrawn(budget: Budget, endpoint: str, now_ms: int) -> str | None:
    """Why a delivery to `endpoint` would overdraw the budget, or None if it would not."""
    if budget.hop_count >= budget.max_hops:
        return f"max hops exceeded ({budget.hop_count}/{budget.max_hops})"
    if endpoint in budget.ancestor_chain:
        return f"cycle detected: {endpoint} already in chain"
    if now_ms > budget.ttl:
        return "message expired (TTL)"
    if budget.call_budget_remaining <= 0:
        return "call budget exhausted"
    return None


def spend(budget: Budget, endpoint: str) -> Budget:
    """The budget after one delivery: a hop and a call are gone, `endpoint` is an ancestor."""
    return Budget(
        hop_count=budget.hop_count + 1,
        max_hops=budget.max_hops,
        ancestor_chain=(*budget.ancestor_chain, endpoint),
        ttl=budget.ttl,
        call_budget_remaining=max(0, budget.call_budget_remaining - 1),
    )


def shrink(allowance: Budget, wish: "Budget | Mapping[str, object]") -> Budget:
    """`allowance` narrowed by what the caller asks for; a wish for more is ignored.

    Raises `InvalidMessage` for unknown fields, values of the wrong kind, or a chain that would
    grow too long.
    """
    if not isinstance(wish, Budget):
        asked = _checked({**msgspec.structs.asdict(allowance), **wish})
    elif _is_sound(wish):
        asked = wish
    else:
        fields = msgspec.structs.asdict(wish)
        # That of a message put back by hand may be overdrawn.
        fields["call_budget_remaining"] = max(0, wish.call_budget_remaining)
        asked = _checked(fields)
    chain = tuple(dict.fromkeys(allowance.ancestor_chain + asked.ancestor_chain))
    if len(chain) > ancestor_chain_max:
        _check_chain(chain)
    return Budget(
        hop_count=max(allowance.hop_count, asked.hop_count),
        max_hops=min(allowance.max_hops, asked.max_hops),
        ancestor_chain=chain,
        ttl=min(allowance.ttl, asked.ttl),
        call_budget_remaining=min(allowance.call_budget_remaining, asked.call_budget_remaining),
    )


class _Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    hop_count: int = 0
    max_hops: int = DEFAULT_MAX_HOPS
    ancestor_chain: tuple[str, ...] = ()
    ttl: int
    call_budget_remaining: int = DEFAULT_CALL_BUDGET


def _is_sound(budget: Budget) -> bool:
    """Whether a budget is as `_checked` gives it: what a message got from the relay is."""
    for number in (budget.hop_count, budget.ttl, budget.call_budget_remaining):
        if type(number) is not int or not 0 <= number <= number_max:
            return False
    hops, chain = budget.max_hops, budget.ancestor_chain
    if type(hops) is not int or not 1 <= hops <= number_max or type(chain) is not tuple:
        return False
    return len(chain) <= ancestor_chain_max and all(map(is_subject, chain))


def _checked(fields: Mapping[str, object]) -> Budget:
    try:
        given = msgspec.convert(dict(fields), _Fields)
    except msgspec.ValidationError as problem:
        raise InvalidMessage(f"invalid budget: {problem}") from None
    numbers = (given.hop_count, given.max_hops, given.ttl, given.call_budget_remaining)
    if min(numbers) < 0 or max(numbers) > number_max or given.max_hops < 1:
        raise InvalidMessage(
            "invalid budget: hop_count, ttl and call_budget_remaining must be 0 or more, max_hops"
            f" 1 or more, and none more than {number_max}"
        )
    _check_chain(given.ancestor_chain)
    return Budget(**msgspec.structs.asdict(given))


def _check_chain(chain: tuple[str, ...]) -> None:
    if len(chain) > ancestor_chain_max:
        raise InvalidMessage(
            f"invalid budget: an ancestor chain may hold at most {ancestor_chain_max} subjects"
        )
    try:
        for ancestor in chain:
            validate_subject(ancestor)
    except InvalidSubject as problem:
        raise InvalidMessage(f"invalid budget: ancestor chain: {problem}") from None
