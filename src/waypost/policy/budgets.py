"""Budgets against loops and runaway cost.

Rule 1  A budget only shrinks: hops and ancestors grow towards their limit, time and calls fall
        towards zero, and no caller can reverse that.
Rule 2  The checks run in this order, and the first failure wins: hops, cycle, expiry, calls.
Rule 3  At `now == ttl` a message is not expired yet.
Rule 4  Only deliveries enter the ancestor chain: an agent cannot name ancestors, or it could have
        the recipient's follow-ups rejected as cycles.
Rule 5  An answer goes back the way of its question, as a call returns: hops and chain are those
        before the question, and its delivery adds to neither. It costs a call like any other
        delivery, so two agents that take turns come to an end. A message back to the sender of an
        answer is a new question.

This module does not know the content of a message or whether it has a reader.
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
    """The remaining budget of a message; `ttl` is its expiry in ms since the epoch."""

    hop_count: int = 0
    max_hops: int = DEFAULT_MAX_HOPS
    ancestor_chain: tuple[str, ...] = ()
    ttl: int
    call_budget_remaining: int = DEFAULT_CALL_BUDGET


class BudgetCut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The fields of a requested budget that asked for more, with what was granted instead.

    None is a field that was granted, or not requested.
    """

    hop_count: int | None = None
    max_hops: int | None = None
    ttl: int | None = None
    call_budget_remaining: int | None = None


class HasBudget(Protocol):
    """Anything that carries a budget, such as an envelope."""

    @property
    def budget(self) -> Budget: ...


class DeliveredMessage(HasBudget, Protocol):
    """A message as delivered, with the budget left after that; `answer`: it was an answer."""

    @property
    def sender(self) -> str: ...
    @property
    def reply_to(self) -> str | None: ...
    @property
    def answer(self) -> bool: ...


class BudgetResult(msgspec.Struct, frozen=True, gc=False):
    """The decision: `reason` if rejected, `updated_budget` (as delivered) if allowed."""

    allowed: bool
    reason: str | None = None
    updated_budget: Budget | None = None


def create_default_budget(now_ms: int, **overrides: object) -> Budget:
    """Return a new budget: 5 hops, 1 h to live, 10 calls; `overrides` are fields by name."""
    fields: dict[str, object] = {"ttl": now_ms + DEFAULT_TTL_MS, **overrides}
    return _checked(fields)


def enforce_budget(envelope: HasBudget, endpoint: str, now_ms: int) -> BudgetResult:
    """Check a delivery to `endpoint`; if allowed, return the budget it is delivered with."""
    reason = overdrawn(envelope.budget, endpoint, now_ms)
    if reason is not None:
        return BudgetResult(False, reason=reason)
    return BudgetResult(True, updated_budget=spend(envelope.budget, endpoint))


def overdrawn(budget: Budget, endpoint: str, now_ms: int, *, answer: bool = False) -> str | None:
    """Return why a delivery to `endpoint` would overdraw the budget, or None.

    The recipient of an `answer` may be in the chain: it asked.
    """
    if budget.hop_count >= budget.max_hops:
        return f"max hops exceeded ({budget.hop_count}/{budget.max_hops})"
    if endpoint in budget.ancestor_chain and not answer:
        return f"cycle detected: {endpoint} already in chain"
    if now_ms > budget.ttl:
        return "message expired (TTL)"
    if budget.call_budget_remaining <= 0:
        return "call budget exhausted"
    return None


def spend(budget: Budget, endpoint: str, *, answer: bool = False) -> Budget:
    """Return the budget after a delivery to `endpoint`: one call less, and one hop more unless it
    is an `answer`."""
    return Budget(
        hop_count=budget.hop_count if answer else budget.hop_count + 1,
        max_hops=budget.max_hops,
        ancestor_chain=budget.ancestor_chain if answer else (*budget.ancestor_chain, endpoint),
        ttl=budget.ttl,
        call_budget_remaining=max(0, budget.call_budget_remaining - 1),
    )


def is_answer(parent: DeliveredMessage, sender: str, subject: str) -> bool:
    """Return whether a message from `sender` to `subject` answers its `parent`.

    The parent was a question delivered to this sender, and the message goes back to who asked, or
    to the reply address. A pattern is no answer, and neither is a message to oneself.
    """
    return (
        not parent.answer
        and subject in (parent.sender, parent.reply_to)
        and subject != sender
        and parent.budget.ancestor_chain[-1:] == (sender,)
    )


def inherited(parent: DeliveredMessage, sender: str, subject: str) -> Budget:
    """Return what a message from `sender` to `subject` inherits of its `parent`'s budget: what is
    left of it, for an answer without the hop of the question."""
    left = parent.budget
    if not is_answer(parent, sender, subject):
        return left
    return Budget(
        hop_count=max(0, left.hop_count - 1),
        max_hops=left.max_hops,
        ancestor_chain=left.ancestor_chain[:-1],
        ttl=left.ttl,
        call_budget_remaining=left.call_budget_remaining,
    )


def shrink(allowance: Budget, requested: "Budget | Mapping[str, object]") -> Budget:
    """Return `allowance` narrowed by `requested`; a request for more is ignored.

    Raise `InvalidMessage` for unknown fields, values of the wrong type, or a chain that would
    become too long.
    """
    if not isinstance(requested, Budget):
        asked = _checked({**msgspec.structs.asdict(allowance), **requested})
    elif _is_valid(requested):
        asked = requested
    else:
        fields = msgspec.structs.asdict(requested)
        # The budget of a redriven message may be overdrawn.
        fields["call_budget_remaining"] = max(0, requested.call_budget_remaining)
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


def budget_cut(
    requested: "Budget | Mapping[str, object]", granted: Budget
) -> BudgetCut | msgspec.UnsetType:
    """Return what `shrink` cut of `requested` to make `granted`; UNSET if nothing."""
    if isinstance(requested, Budget):
        asked = requested
    else:
        asked = _checked({**msgspec.structs.asdict(granted), **requested})
    cut: dict[str, int] = {}
    if asked.hop_count < granted.hop_count:
        cut["hop_count"] = granted.hop_count
    if asked.max_hops > granted.max_hops:
        cut["max_hops"] = granted.max_hops
    if asked.ttl > granted.ttl:
        cut["ttl"] = granted.ttl
    if asked.call_budget_remaining > granted.call_budget_remaining:
        cut["call_budget_remaining"] = granted.call_budget_remaining
    return BudgetCut(**cut) if cut else msgspec.UNSET


def without_ancestors(requested: Mapping[str, object]) -> dict[str, object]:
    """Return the budget that an agent requests, without an ancestor chain."""
    return {name: value for name, value in requested.items() if name != "ancestor_chain"}


class _Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    hop_count: int = 0
    max_hops: int = DEFAULT_MAX_HOPS
    ancestor_chain: tuple[str, ...] = ()
    ttl: int
    call_budget_remaining: int = DEFAULT_CALL_BUDGET


def _is_valid(budget: Budget) -> bool:
    """Return whether a budget passes `_checked` unchanged, as that of a delivered message does."""
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
            f"invalid budget: an ancestor chain may have at most {ancestor_chain_max} subjects"
        )
    try:
        for ancestor in chain:
            validate_subject(ancestor)
    except InvalidSubject as problem:
        raise InvalidMessage(f"invalid budget: ancestor chain: {problem}") from None
