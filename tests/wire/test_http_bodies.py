"""Request bodies: strict fields and bounds, documented as they are checked."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidSubject
from waypost.policy.subjects import validate_subject
from waypost.wire import http_bodies as bodies
from waypost.wire.http_bodies import (
    BudgetRequest,
    Delivered,
    NewMessage,
    PatternText,
    RequestBody,
    SubjectText,
)

REQUESTS = [
    one for one in vars(bodies).values() if isinstance(one, type) and issubclass(one, RequestBody)
]

NAMES = st.text(st.sampled_from("ab_-9.*> é\n"), max_size=24)


def stated(kind: Any) -> str:
    """Return the regular expression in the OpenAPI document for a type."""
    pattern: str = msgspec.json.schema(kind)["pattern"]
    return pattern.removesuffix("$") + r"\Z"  # as in JSON Schema: the end, not a line's end


def is_valid(name: str, *, wildcards: bool) -> bool:
    try:
        validate_subject(name, allow_wildcards=wildcards)
    except InvalidSubject:
        return False
    return True


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_unknown_field_is_rejected(kind: Any) -> None:
    required = {
        field.encode_name: _VALUES.get(field.name, "x")
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    assert msgspec.json.decode(msgspec.json.encode(required), type=kind)
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        msgspec.json.decode(msgspec.json.encode({**required, "surprise": 1}), type=kind)


_VALUES = {
    "ids": ["m1"],
    "seconds": 1,
    "messages": [{"subject": "agent.a", "payload": 1}],
    "inboxes": [{"subject": "agent.a"}],
    "action": "deny",
}


@given(NAMES)
def test_the_stated_format_of_subjects_is_the_checked_one(name: str) -> None:
    assert bool(re.search(stated(SubjectText), name)) == is_valid(name, wildcards=False)


@given(NAMES)
def test_the_stated_format_of_patterns_is_the_checked_one(name: str) -> None:
    assert bool(re.search(stated(PatternText), name)) == is_valid(name, wildcards=True)


@pytest.mark.parametrize("tokens", [16, 17])
@pytest.mark.parametrize("last", ["a", "*", ">"])
def test_the_stated_number_of_tokens_is_the_checked_one(tokens: int, last: str) -> None:
    name = ".".join(["a"] * (tokens - 1) + [last])
    assert bool(re.search(stated(PatternText), name)) == is_valid(name, wildcards=True)


def test_a_payload_is_kept_byte_for_byte() -> None:
    raw = b'{"subject":"agent.a","payload":{"n": 1.10}}'
    assert bytes(msgspec.json.decode(raw, type=NewMessage).payload) == b'{"n": 1.10}'


def test_a_budget_holds_only_the_given_fields() -> None:
    asked = msgspec.json.decode(b'{"ttl":5}', type=BudgetRequest)
    assert msgspec.to_builtins(asked) == {"ttl": 5}


@pytest.mark.parametrize("raw", [b'{"ttl":-1}', b'{"max_hops":0}', b'{"ttl":null}'])
def test_the_fields_of_a_budget_are_bounded(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=BudgetRequest)


def test_a_delivered_message_is_an_envelope_and_its_parent() -> None:
    delivered = Delivered(
        id="m2",
        subject="agent.a",
        sender="agent.b",
        budget=Budget(ttl=5),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        payload=msgspec.Raw(b"[1]"),
        parent="m1",
    )
    again = msgspec.json.decode(msgspec.json.encode(delivered), type=Delivered)
    assert (again.id, again.payload, again.parent) == ("m2", [1], "m1")
