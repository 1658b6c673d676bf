"""Rejections as other processes see them."""

import msgspec
import pytest

from waypost.policy.reasons import Reason
from waypost.wire.problems import STATUS, Problem, discreet, problem_of
from waypost.wire.results import PublishResult, Rejection

NUMBERS = "backpressure: mailbox full (1000/1000)"


def test_every_reason_has_an_error_status() -> None:
    assert set(STATUS) == set(Reason)
    assert all(400 <= status < 600 for status in STATUS.values())


def test_a_quota_rejection_is_the_bare_text() -> None:
    problem = problem_of(Rejection("5d44", Reason.QUOTA_EXCEEDED, "tier 1: 20/20"), 5000)
    assert msgspec.json.encode(problem) == b'{"error":"sender quota exceeded for this inbox"}'


@pytest.mark.parametrize("reason", [one for one in Reason if one != Reason.QUOTA_EXCEEDED])
def test_any_other_rejection_has_its_reason_and_retry_delay(reason: Reason) -> None:
    problem = problem_of(Rejection("", reason, "in words"), 1500)
    assert problem == Problem(error="in words", reason=reason, retry_after_ms=1500)


def test_a_rejection_without_detail_shows_its_reason() -> None:
    assert problem_of(Rejection("", Reason.STORAGE_FULL)).error == "storage_full"


def test_a_remote_result_hides_mailbox_fill_levels() -> None:
    result = PublishResult(
        message_id="m1",
        delivered_to=1,
        rejected=[Rejection("5d44", Reason.BACKPRESSURE, NUMBERS)],
        retry_after_ms=7,
        mailbox_pressure={"5d44": 1.0, "77aa": 0.25},
    )
    shown = discreet(result, "agent.a")
    assert (shown.message_id, shown.delivered_to, shown.retry_after_ms) == ("m1", 1, 7)
    assert shown.mailbox_pressure == {}
    assert [one.reason for one in shown.rejected] == [Reason.BACKPRESSURE]
    assert "1000" not in msgspec.json.encode(shown).decode()


def test_the_original_result_is_unchanged() -> None:
    result = PublishResult(
        message_id="m1", delivered_to=0, rejected=[Rejection("5d44", Reason.BACKPRESSURE, NUMBERS)]
    )
    discreet(result, "agent.a")
    assert result.rejected[0].detail == NUMBERS


def test_rejections_that_reveal_nothing_are_shown_unchanged() -> None:
    rejected = [Rejection("5d44", Reason.BUDGET_EXCEEDED, "max hops exceeded (5/5)")]
    shown = discreet(PublishResult(message_id="m1", delivered_to=0, rejected=rejected), "agent.a")
    assert shown.rejected == rejected


def test_of_the_endpoints_of_a_pattern_no_result_shows_which_rejected() -> None:
    rejected = [
        Rejection("5d44", Reason.BACKPRESSURE, NUMBERS),
        Rejection("77aa", Reason.CIRCUIT_OPEN, "circuit open for endpoint agent.secret"),
        Rejection("12ab", Reason.BUDGET_EXCEEDED, "cycle detected: agent.secret already in chain"),
        Rejection("34cd", Reason.BUDGET_EXCEEDED, "call budget exhausted"),
        Rejection("56ef", Reason.QUOTA_EXCEEDED, "sender quota exceeded for this inbox"),
    ]
    result = PublishResult(message_id="m1", delivered_to=2, rejected=rejected)
    shown = discreet(result, "agent.*")
    assert [one.reason for one in shown.rejected] == [one.reason for one in rejected]
    assert {one.endpoint_hash for one in shown.rejected} == {""}
    assert "agent.secret" not in msgspec.json.encode(shown).decode()
    assert shown.rejected[3].detail == "call budget exhausted"
