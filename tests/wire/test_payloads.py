"""Payloads and signals: JSON encoding, and validation of the typed ones."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import (
    Attachment,
    ChannelType,
    InvalidMessage,
    Performative,
    ResponseContext,
    Signal,
    SignalType,
    StandardPayload,
)
from waypost.policy.bounds import payload_nesting_max_levels
from waypost.wire.payloads import encode_payload, validate_signal

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL = StandardPayload(
    content="Deployed.",
    sender_name="Ada",
    sender_avatar="ada.png",
    channel_name="releases",
    channel_type=ChannelType.THREAD,
    attachments=[Attachment(path="/tmp/log", filename="log", mime_type="text/plain", size=3)],
    response_context=ResponseContext(
        platform="terminal", max_length=80, supported_formats=["text"], instructions="be brief"
    ),
    performative=Performative.INFORM,
    conversation_id="c-1",
    correlation_id="r-1",
    platform_data={"thread_ts": 1.5},
)


def nested(levels: int, kind: str = "[") -> Any:
    inner: Any = 1
    for level in range(levels):
        as_list = kind == "[" or (kind == "both" and level % 2)
        inner = [inner] if as_list else {"a": inner}
    return inner


def test_the_values_of_the_enums_are_stable() -> None:
    assert [str(one) for one in Performative] == [
        "request",
        "inform",
        "query",
        "propose",
        "accept",
        "reject",
        "cfp",
        "failure",
    ]
    assert [str(one) for one in ChannelType] == ["dm", "group", "channel", "thread"]
    assert [str(one) for one in SignalType] == [
        "typing",
        "presence",
        "read_receipt",
        "delivery_receipt",
        "progress",
        "backpressure",
    ]


def test_a_standard_payload_encodes_only_the_given_fields() -> None:
    assert json.loads(encode_payload(StandardPayload(content="hi"))) == {"content": "hi"}


def test_a_full_standard_payload_is_the_same_after_a_round_trip() -> None:
    assert msgspec.json.decode(encode_payload(FULL), type=StandardPayload) == FULL


@pytest.mark.parametrize(
    "changes",
    [
        {"content": 7},
        {"content": None},
        {"channel_type": "room"},
        {"performative": "shout"},
        {"attachments": ["log"]},
        {"attachments": [Attachment(path="/", filename="x", mime_type="a/b", size=-1)]},
        {"response_context": ResponseContext(platform="x", max_length="long")},
        {"response_context": ResponseContext(platform="x", supported_formats="text")},
        {"conversation_id": 5},
    ],
)
def test_a_standard_payload_of_the_wrong_kind_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="cannot be sent as JSON"):
        encode_payload(msgspec.structs.replace(FULL, **changes))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_value_is_the_same_after_a_round_trip(payload: object) -> None:
    assert json.loads(encode_payload(payload)) == payload


@pytest.mark.parametrize("payload", [b"bytes", bytearray(b"bytes"), memoryview(b"bytes")])
def test_bytes_are_rejected_with_a_hint(payload: object) -> None:
    with pytest.raises(InvalidMessage, match="base64"):
        encode_payload(payload)


@pytest.mark.parametrize(
    "payload",
    [
        object(),
        {"a": object()},
        lambda: None,
        {1.5: 1, (1, 2): 3},
        "\ud800",
        {"a": 1j},
        NOW.__class__,
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_value_that_json_cannot_hold_is_rejected(payload: object) -> None:
    with pytest.raises(InvalidMessage, match="cannot be sent as JSON"):
        encode_payload(payload)


@pytest.mark.parametrize(
    "raw", [b"", b"oops", b"1 2", b'{"a":', b'"a\nb"', b'"\xff"', b'["\xc3\x28"]', b"NaN"]
)
@pytest.mark.parametrize("position", ["alone", "in a list", "in a mapping", "in a typed payload"])
def test_invalid_raw_json_is_rejected_at_any_position(raw: bytes, position: str) -> None:
    part = msgspec.Raw(raw)
    payload = {
        "alone": part,
        "in a list": [1, part],
        "in a mapping": {"a": {"b": part}},
        "in a typed payload": StandardPayload(content="x", platform_data=part),
    }[position]
    with pytest.raises(InvalidMessage, match="cannot be sent as JSON"):
        encode_payload(payload)


@pytest.mark.parametrize("kind", ["[", "{", "both"])
def test_a_payload_may_be_nested_up_to_the_limit(kind: str) -> None:
    deepest = nested(payload_nesting_max_levels, kind)
    assert json.loads(encode_payload(deepest)) == deepest
    with pytest.raises(InvalidMessage, match="flatten it"):
        encode_payload(nested(payload_nesting_max_levels + 1, kind))


@pytest.mark.parametrize("levels", [900, 5_000])
def test_an_extremely_nested_payload_is_rejected(levels: int) -> None:
    with pytest.raises(InvalidMessage):
        encode_payload(nested(levels))
    with pytest.raises(InvalidMessage):
        encode_payload(msgspec.Raw(b"[" * levels + b"]" * levels))


@pytest.mark.parametrize(
    "payload",
    [
        [[]] * 500,
        [{"a": [1, {"b": []}]}] * 100,
        "[" * 500,
        ['"[{\\"[' * 200, "\\", '\\"[[[', "]]}"],
        {"[" * 50: "{" * 50, "\\" * 7: "[" * 80},
    ],
)
def test_adjacent_brackets_and_brackets_in_strings_do_not_count_as_nesting(payload: object) -> None:
    assert json.loads(encode_payload(payload)) == payload


def signal(**changes: Any) -> Signal:
    fields = {"type": SignalType.TYPING, "state": "active", "endpoint_subject": "agent.a"}
    return Signal(**{**fields, "timestamp": NOW, **changes})


def test_a_valid_signal_passes_unchanged() -> None:
    given_signal = signal(data={"progress": 0.5})
    assert validate_signal(given_signal) == given_signal


def test_the_type_of_a_signal_may_be_a_string() -> None:
    assert validate_signal(signal(type="presence")).type is SignalType.PRESENCE


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "shouting"},
        {"state": 5},
        {"endpoint_subject": None},
        {"timestamp": "yesterday"},
        {"data": object()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_signal_with_a_wrong_field_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="invalid signal"):
        validate_signal(signal(**changes))


@pytest.mark.parametrize("given_signal", [None, "typing", {"type": "typing"}])
def test_another_type_than_a_signal_is_rejected(given_signal: object) -> None:
    with pytest.raises(InvalidMessage, match="expected a Signal"):
        validate_signal(given_signal)
