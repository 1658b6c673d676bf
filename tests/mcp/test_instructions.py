"""Every rejection and failure has an instruction."""

import pytest

from waypost.client.errors import (
    AgentClosed,
    AlreadyConnected,
    CannotConnect,
    OperationRejected,
    SendTimedOut,
    SubjectTaken,
)
from waypost.client.http import RemoteError
from waypost.mcp.fencing import TIER_TEXTS
from waypost.mcp.instructions import (
    BUDGET_EXCEEDED,
    GUARD_REJECTIONS,
    REJECTIONS,
    failure,
    guard_rejection,
    rejection_lines,
    wait_text,
    what_to_do,
)
from waypost.policy.budgets import create_default_budget, overdrawn
from waypost.policy.errors import AccessDenied, InvalidInput, WaypostError
from waypost.policy.guard import GuardRejectionReason, MessagingGuardConfig, limit_of
from waypost.policy.reasons import Reason
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT, Tier
from waypost.wire.results import Rejection


def test_the_tables_cover_every_reason_and_tier() -> None:
    assert REJECTIONS.keys() == set(Reason)
    assert GUARD_REJECTIONS.keys() == set(GuardRejectionReason)
    assert TIER_TEXTS.keys() == set(Tier)


@pytest.mark.parametrize("reason", Reason)
def test_an_instruction_is_complete_and_has_no_placeholder(reason: Reason) -> None:
    output = what_to_do(Rejection("", reason), 41_250)
    assert "{" not in output
    assert len(output) > 40


@pytest.mark.parametrize("reason", [Reason.RATE_LIMITED, Reason.CIRCUIT_OPEN])
def test_a_wait_is_given_in_whole_seconds(reason: Reason) -> None:
    assert "Wait 42 seconds" in what_to_do(Rejection("", reason), 41_250)


@pytest.mark.parametrize(
    ("ms", "words"),
    [(1, "1 second"), (1000, "1 second"), (1001, "2 seconds"), (0, "a minute")],
)
def test_a_wait_is_rounded_up(ms: int, words: str) -> None:
    assert wait_text(ms) == words


@pytest.mark.parametrize(
    ("spent", "word"),
    [
        ({"hop_count": 5}, "runaway chain"),
        ({"ancestor_chain": ["agent.a"]}, "loop"),
        ({"ttl": 0}, "too late"),
        ({"call_budget_remaining": 0}, "used all its calls"),
    ],
)
def test_each_exhausted_part_of_a_budget_has_its_own_instruction(
    spent: dict[str, object], word: str
) -> None:
    detail = overdrawn(create_default_budget(1000, **spent), "agent.a", 1000)
    assert detail is not None
    output = what_to_do(Rejection("", Reason.BUDGET_EXCEEDED, detail), 0)
    assert word in output
    assert output in dict(BUDGET_EXCEEDED).values()


def test_the_same_rejection_by_many_mailboxes_is_reported_once() -> None:
    twice = [
        Rejection("a", Reason.BACKPRESSURE, "full"),
        Rejection("b", Reason.BACKPRESSURE, "full"),
    ]
    assert len(rejection_lines(twice, 0)) == 1


def test_a_quota_rejection_shows_only_its_reason() -> None:
    [line] = rejection_lines([Rejection("", Reason.QUOTA_EXCEEDED, QUOTA_EXCEEDED_TEXT)], 0)
    assert line.startswith("Rejected (quota_exceeded). Too many")


@pytest.mark.parametrize("reason", GuardRejectionReason)
def test_a_blocked_request_gets_an_instruction(reason: GuardRejectionReason) -> None:
    output = guard_rejection(reason, 2000, limit_of(reason, MessagingGuardConfig()))
    assert "Wait 2 seconds" in output
    assert "AGENT_" in output
    assert "relay_send" in output


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (InvalidInput("no subject"), ["no subject", "correct the arguments"]),
        (AccessDenied("agent.a", "agent.b"), ["access rules", "another recipient"]),
        (SendTimedOut("m-1", 20), ['message_id="m-1"', "stored once"]),
        (AlreadyConnected("taken"), ["same keys", "tell the person"]),
        (SubjectTaken("belongs to another key"), ["another key", "tell the person"]),
        (CannotConnect("no relay"), ["no relay", "tell the person"]),
        (RemoteError("start one with 'waypost serve'"), ["waypost serve", "tell the person"]),
        (OperationRejected("busy", "stopped", 3000), ["busy", "Wait 3 seconds"]),
        (OperationRejected("busy", "stopped"), ["busy", "Call again later"]),
        (AgentClosed("closed"), ["Call again"]),
    ],
)
def test_a_failure_names_the_cause_and_the_next_step(
    problem: WaypostError, words: list[str]
) -> None:
    output = failure(problem)
    assert [word for word in words if word not in output] == []
