"""Frames: the same operations in both encodings, and strict decoding of an agent's."""

import math
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.bounds import lease_extension_max_s, lease_max_messages, number_max, wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.wire import frames
from waypost.wire.cards import AgentCard
from waypost.wire.codecs import CODECS, Codec
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL
from waypost.wire.payloads import Signal, SignalType
from waypost.wire.scheduled import ScheduledMessage

JSON, MSGPACK = CODECS[JSON_PROTOCOL], CODECS[MSGPACK_PROTOCOL]
BOTH = pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=lambda codec: codec.protocol)

SIGNAL = Signal(
    type=SignalType.TYPING,
    state="on",
    endpoint_subject="agent.a",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    data={"n": [1]},
)
BUDGET = Budget(max_hops=5, ttl=1, call_budget_remaining=1)
ENVELOPE = Envelope(
    id="x", subject="agent.a", sender="agent.b", budget=BUDGET, created_at=SIGNAL.timestamp
)
SCHEDULED = ScheduledMessage(
    id="x",
    sender="agent.a",
    subject="agent.b",
    endpoint="agent.b",
    size=1,
    accepted_at=ENVELOPE.created_at,
    deliver_at=ENVELOPE.created_at,
)
SIGNALLED = frames.Signalled(subject="agent.a", signal=SIGNAL, sender="agent.b")
FROM_RELAY = [
    frames.Challenge(nonce="n"),
    frames.Welcome(
        subject="agent.a",
        token="t",
        token_expires_at=1,
        frame_max_bytes=2,
        operations_max=3,
        unconfirmed_max=4,
    ),
    frames.QueueStatus(pending=3),
    frames.Live(),
    frames.Message(envelope=ENVELOPE, parent="p", was_stored=True),
    frames.FetchedMessages(ref=1, messages=[frames.Message(envelope=ENVELOPE)]),
    frames.SendResult(ref=1, message_id="x", delivered_to=1),
    frames.SentMany(ref=1, last_ref=2, delivered_to=1),
    frames.ScheduledResult(ref=1, messages=[SCHEDULED], more=True),
    frames.CancelResult(ref=1, ids=["x"]),
    frames.CardSet(ref=1),
    frames.QueueFull(ref=1, recipient="agent.a", reason="full"),
    frames.DeliveryConfirm(message_id="x", recipient="agent.a", was_stored=False, id="y"),
    frames.DeliveryConfirms(recipient="agent.a", confirmed=[("x", False)], id="y"),
    frames.RequestFailure(message_id="x", error="no such user"),
    SIGNALLED,
    frames.Error(error="no", reason="invalid", ref=0, fatal=True),
]
FROM_AGENT = [
    frames.Auth(subject="agent.a", public_key="k", signature="s", receive="pull"),
    frames.Send(ref=1, subject="agent.a", payload=msgspec.Raw(b"1"), reply_within=5.0),
    frames.Ack(ids=["x"]),
    frames.Nack(ids=["x"], delay=1.5, error="no"),
    frames.Extend(ids=["x"], seconds=60),
    frames.Fetch(ref=1, limit=2, max_size_bytes=3, wait=4.0),
    frames.ListScheduled(ref=1, limit=2),
    frames.Cancel(ref=1, ids=["x"]),
    frames.SetCard(ref=1, card=AgentCard(skills=("sum",))),
    frames.SendSignal(subject="agent.a", signal=SIGNAL),
]


def test_every_operation_is_tested_here() -> None:
    assert {type(one) for one in FROM_RELAY} == set(get_args(frames.FromRelay))
    assert {type(one) for one in FROM_AGENT} == set(get_args(frames.FromAgent))


@BOTH
@pytest.mark.parametrize("operation", FROM_RELAY, ids=lambda one: type(one).__name__)
def test_operations_of_the_relay_survive_a_round_trip(
    codec: Codec, operation: frames.FrameOperation
) -> None:
    assert codec.from_relay(codec.encode(operation)) == [operation]


@BOTH
@pytest.mark.parametrize("operation", FROM_AGENT, ids=lambda one: type(one).__name__)
def test_operations_of_an_agent_survive_a_round_trip(
    codec: Codec, operation: frames.FrameOperation
) -> None:
    if isinstance(operation, frames.Send):
        (found,) = codec.from_agent(codec.encode(operation))
        assert isinstance(found, frames.Send)
        assert (found.ref, found.subject, bytes(found.payload)) == (1, "agent.a", b"1")
    else:
        assert codec.from_agent(codec.encode(operation)) == [operation]


@BOTH
def test_a_frame_may_hold_a_list(codec: Codec) -> None:
    assert codec.from_relay(codec.encode(FROM_RELAY)) == FROM_RELAY
    assert codec.from_agent(codec.encode([])) == []


def test_agents_may_send_json_as_text() -> None:
    assert JSON.from_agent('{"op":"ack","ids":["x"]}') == [frames.Ack(ids=["x"])]
    assert JSON.from_agent(b'{"op":"ack","ids":["x"]}') == [frames.Ack(ids=["x"])]


def test_a_text_frame_is_not_messagepack() -> None:
    with pytest.raises(msgspec.DecodeError, match="binary"):
        MSGPACK.from_agent('{"op":"ack","ids":["x"]}')


@BOTH
@pytest.mark.parametrize("operation", FROM_RELAY, ids=lambda one: type(one).__name__)
def test_an_agent_cannot_send_operations_of_the_relay(
    codec: Codec, operation: frames.FrameOperation
) -> None:
    if type(operation).__struct_config__.tag != "signal":  # both sides have one
        with pytest.raises(msgspec.DecodeError):
            codec.from_agent(codec.encode(operation))


def test_a_signal_that_names_its_sender_is_rejected() -> None:
    with pytest.raises(msgspec.DecodeError, match="unknown field `sender`"):
        JSON.from_agent(JSON.encode(SIGNALLED))


ENDS: list[tuple[dict[str, Any], bool]] = [
    ({"op": "ack", "ids": ["x"] * lease_max_messages}, True),
    ({"op": "ack", "ids": ["x"] * (lease_max_messages + 1)}, False),
    ({"op": "nack", "ids": [], "delay": wait_max_s}, True),
    ({"op": "nack", "ids": [], "delay": wait_max_s + 1}, False),
    ({"op": "nack", "ids": [], "delay": -0.001}, False),
    ({"op": "nack", "ids": [], "delay": math.nan}, False),
    ({"op": "nack", "ids": [], "delay": math.inf}, False),
    ({"op": "extend", "ids": [], "seconds": lease_extension_max_s}, True),
    ({"op": "extend", "ids": [], "seconds": lease_extension_max_s + 1}, False),
    ({"op": "extend", "ids": [], "seconds": -0.001}, False),
    ({"op": "extend", "ids": []}, False),
    ({"op": "fetch", "ref": 0, "limit": 1}, True),
    ({"op": "fetch", "ref": 0, "limit": 0}, False),
    ({"op": "fetch", "ref": 0, "limit": lease_max_messages + 1}, False),
    ({"op": "fetch", "ref": number_max}, True),
    ({"op": "fetch", "ref": number_max + 1}, False),
    ({"op": "fetch", "ref": -1}, False),
    ({"op": "fetch", "ref": 0, "wait": math.nan}, False),
    ({"op": "fetch", "ref": 0, "max_size_bytes": -1}, False),
    ({"op": "fetch", "ref": 0, "more": 1}, False),
    ({"op": "auth", "subject": "a", "public_key": "k", "signature": "s", "receive": "x"}, False),
    ({"op": "send", "ref": 0, "subject": "agent.a"}, False),
]


@pytest.mark.parametrize(("operation", "is_taken"), ENDS)
def test_numbers_are_bounded(operation: dict[str, Any], is_taken: bool) -> None:
    frame = msgspec.msgpack.encode(operation)  # MessagePack can encode NaN
    if is_taken:
        assert len(MSGPACK.from_agent(frame)) == 1
    else:
        with pytest.raises(msgspec.DecodeError):
            MSGPACK.from_agent(frame)


# Payloads: JSON inside the relay, in either encoding

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_a_payload_survives_a_round_trip_in_every_encoding(value: object) -> None:
    stored = msgspec.json.encode(
        MSGPACK.payload_to_json(msgspec.Raw(msgspec.msgpack.encode(value)))
    )
    assert msgspec.msgpack.decode(MSGPACK.payload_from_json(msgspec.Raw(stored))) == value
    raw = msgspec.Raw(stored)
    assert JSON.payload_to_json(raw) is raw
    assert JSON.payload_from_json(raw) is raw


@pytest.mark.parametrize("text", [b"18446744073709551616", b"[-9223372036854775809]", b"1e999"])
def test_a_payload_that_messagepack_cannot_hold_is_rejected(text: bytes) -> None:
    with pytest.raises(InvalidMessage, match="MessagePack"):
        MSGPACK.payload_from_json(msgspec.Raw(text))


@given(st.binary(max_size=40))
def test_any_messagepack_bytes_are_a_value_or_an_invalid_message(raw: bytes) -> None:
    try:
        MSGPACK.payload_to_json(msgspec.Raw(raw))
    except InvalidMessage:
        pass


@BOTH
@given(frame=st.binary(max_size=60) | st.text(max_size=60))
def test_any_frame_bytes_are_operations_or_a_decoding_error(
    codec: Codec, frame: bytes | str
) -> None:
    try:
        codec.from_agent(frame)
    except (msgspec.DecodeError, UnicodeError):
        pass
