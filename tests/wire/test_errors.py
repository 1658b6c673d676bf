"""Request errors: one `except` for the relay's and the client's."""

import pytest

import waypost
from waypost.client import errors as client_errors
from waypost.policy.reasons import Reason
from waypost.relay import errors as relay_errors
from waypost.wire.results import PublishResult, Rejection


@pytest.mark.parametrize("name", ["RequestRejected", "RequestTimedOut"])
def test_the_public_error_is_the_base_of_both_sides(name: str) -> None:
    base = getattr(waypost, name)
    for side, its_base in (
        (relay_errors, relay_errors.RelayError),
        (client_errors, client_errors.ClientError),
    ):
        raised = getattr(side, name)
        assert issubclass(raised, base)
        assert issubclass(raised, its_base)


def test_a_request_that_timed_out_is_a_timeout_error() -> None:
    assert issubclass(relay_errors.RequestTimedOut, TimeoutError)
    assert issubclass(client_errors.RequestTimedOut, TimeoutError)


def test_a_rejected_request_names_the_subject_and_every_reason() -> None:
    rejected = [Rejection("0f", Reason.BACKPRESSURE, "full"), Rejection("1f", Reason.CIRCUIT_OPEN)]
    result = PublishResult(message_id="", delivered_to=0, rejected=rejected)
    problem = client_errors.RequestRejected("agent.a", result)
    assert str(problem) == (
        "request to agent.a not delivered: backpressure (full), circuit_open ()"
    )
    assert problem.result is result


def test_a_request_without_a_recipient_names_the_missing_endpoint() -> None:
    result = PublishResult(message_id="", delivered_to=0)
    problem = relay_errors.RequestRejected("agent.a", result)
    assert str(problem) == "request to agent.a not delivered: no such endpoint"
