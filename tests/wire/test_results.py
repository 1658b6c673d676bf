"""The result of a publish."""

import json

import msgspec

from waypost import PublishResult, Reason, Rejection


def test_a_result_has_minimal_defaults() -> None:
    result = PublishResult(message_id="a", delivered_to=1)
    assert (result.rejected, result.retry_after_ms, result.mailbox_pressure) == ([], 0, {})


def test_two_results_share_nothing() -> None:
    one, other = (PublishResult(message_id="a", delivered_to=0) for _ in range(2))
    one.rejected.append(Rejection("", Reason.RATE_LIMITED))
    one.mailbox_pressure["x"] = 1.0
    assert (other.rejected, other.mailbox_pressure) == ([], {})


def test_reasons_are_plain_strings() -> None:
    assert Rejection("", Reason.RATE_LIMITED).reason == "rate_limited"
    assert {str(reason) for reason in Reason} == {
        "rate_limited",
        "fanout_exceeded",
        "backpressure",
        "quota_exceeded",
        "circuit_open",
        "budget_exceeded",
        "storage_full",
        "access_denied",
        "mailbox_unavailable",
        "partition_unavailable",
    }


def test_a_result_is_the_same_after_a_round_trip() -> None:
    result = PublishResult(
        message_id="a",
        delivered_to=2,
        rejected=[Rejection("5d4475ca3ccb", Reason.CIRCUIT_OPEN, "circuit open")],
        retry_after_ms=1500,
        mailbox_pressure={"5d4475ca3ccb": 0.25},
    )
    encoded = msgspec.json.encode(result)
    assert msgspec.json.decode(encoded, type=PublishResult) == result
    assert json.loads(encoded)["rejected"][0]["reason"] == "circuit_open"
