"""Envelopes: encoding, and the computed size."""

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from waypost import Budget, Envelope
from waypost.policy.budgets import spend
from waypost.wire.envelopes import decode_envelope, encode_envelope, instant, stored_size
from waypost.wire.events import Accepted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}(\.[A-Za-z0-9_-]{1,12}){0,3}", fullmatch=True)
AT_US = st.integers(0, 4_000_000_000_000_000)
BUDGETS = st.builds(
    Budget,
    hop_count=st.integers(0, 300),
    max_hops=st.integers(1, 256),
    ancestor_chain=st.lists(NAMES, max_size=4).map(tuple),
    ttl=st.integers(0, 1 << 50),
    call_budget_remaining=st.integers(0, 1 << 40),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
ENVELOPES = st.builds(
    Envelope,
    id=IDS,
    subject=NAMES,
    sender=NAMES,
    reply_to=st.none() | NAMES,
    thread=IDS,
    answer=st.booleans(),
    budget=BUDGETS,
    created_at=AT_US.map(instant),
    payload=JSON,
)


@settings(max_examples=50)
@given(ENVELOPES)
def test_an_envelope_is_the_same_after_a_round_trip(envelope: Envelope) -> None:
    assert decode_envelope(encode_envelope(envelope)) == envelope


@settings(max_examples=50)
@given(ENVELOPES)
def test_an_envelope_is_one_line_of_plain_json(envelope: Envelope) -> None:
    encoded = encode_envelope(envelope)
    assert b"\n" not in encoded
    assert json.loads(encoded)["payload"] == envelope.payload


def test_a_file_holds_the_header_as_readable_json() -> None:
    envelope = Envelope(
        id="order-1",
        subject="agent.a",
        sender="agent.b",
        budget=Budget(ttl=5),
        created_at=instant(1_700_000_000_123_456),
        payload={"n": 1},
    )
    assert json.loads(encode_envelope(envelope)) == {
        "id": "order-1",
        "subject": "agent.a",
        "sender": "agent.b",
        "reply_to": None,
        "budget": {
            "hop_count": 0,
            "max_hops": 5,
            "ancestor_chain": [],
            "ttl": 5,
            "call_budget_remaining": 10,
        },
        "created_at": "2023-11-14T22:13:20.123456Z",
        "payload": {"n": 1},
    }


def test_the_thread_in_a_file_is_the_id_unless_it_says_otherwise() -> None:
    envelope = Envelope(
        id="order-1",
        subject="agent.a",
        sender="agent.b",
        budget=Budget(ttl=5),
        created_at=instant(1_700_000_000_123_456),
    )
    assert decode_envelope(encode_envelope(envelope)).thread == "order-1"


@given(AT_US)
def test_an_instant_is_exact_to_the_microsecond(at_us: int) -> None:
    moment = instant(at_us)
    assert moment.tzinfo is UTC
    assert (moment - EPOCH) // timedelta(microseconds=1) == at_us


@settings(max_examples=50)
@given(ENVELOPES, AT_US, NAMES, st.booleans())
def test_the_size_of_a_stored_envelope_is_computed_without_encoding(
    envelope: Envelope, at_us: int, endpoint: str, begins: bool
) -> None:
    thread = "" if begins else envelope.thread
    arrival = Accepted(
        at_us=at_us,
        id=envelope.id,
        subject=envelope.subject,
        sender=envelope.sender,
        reply_to=envelope.reply_to,
        thread=thread,
        answer=envelope.answer,
        endpoint=endpoint,
        budget=envelope.budget,
    )
    stored = Envelope(
        id=envelope.id,
        subject=envelope.subject,
        sender=envelope.sender,
        reply_to=envelope.reply_to,
        thread=thread,
        answer=envelope.answer,
        budget=spend(envelope.budget, endpoint, answer=envelope.answer),
        created_at=instant(at_us),
        payload=envelope.payload,
    )
    payload_bytes = len(encode_envelope(envelope.payload))
    size = stored_size(arrival, envelope.budget, endpoint, payload_bytes)
    assert size == len(encode_envelope(stored))
