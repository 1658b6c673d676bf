"""Payloads and signals: their encoding, and optional types that agents may agree on.

A payload may be any JSON value. Values of these types are validated on publish or signal; using
them is optional.
"""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

import msgspec

from waypost.policy.bounds import payload_nesting_max_levels
from waypost.policy.errors import InvalidMessage

Size = Annotated[int, msgspec.Meta(ge=0)]


class Performative(StrEnum):
    """The speech act of a message."""

    REQUEST = "request"
    INFORM = "inform"
    QUERY = "query"
    PROPOSE = "propose"
    ACCEPT = "accept"
    REJECT = "reject"
    CFP = "cfp"
    FAILURE = "failure"


class ChannelType(StrEnum):
    """The channel in which a person wrote a message."""

    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class EvictionNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a message from `_relay` to the sender of evicted messages."""

    notice: Literal["evicted"] = "evicted"
    text: str
    recipient: str
    message_ids: list[str]

    @classmethod
    def about(cls, message_ids: list[str], recipient: str) -> Self:
        """Return the notice about messages to `recipient`."""
        count = len(message_ids)
        which = f"message {message_ids[0]}" if count == 1 else f"{count} messages"
        were = "was" if count == 1 else "were"
        text = (
            f"your {which} to {recipient} {were} evicted unread: its inbox is full;"
            " send again later"
        )
        return cls(recipient=recipient, message_ids=message_ids, text=text)


class SignalType(StrEnum):
    """The topic of an ephemeral signal."""

    TYPING = "typing"
    PRESENCE = "presence"
    READ_RECEIPT = "read_receipt"
    DELIVERY_RECEIPT = "delivery_receipt"
    PROGRESS = "progress"
    BACKPRESSURE = "backpressure"


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file attached to a message; `size` in bytes."""

    path: str
    filename: str
    mime_type: str
    size: Size | None = None


class ResponseContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of the platform that will show a reply; `max_length` in characters."""

    platform: str
    max_length: Size | None = None
    supported_formats: list[str] | None = None
    instructions: str | None = None


class StandardPayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape of a conversational payload."""

    content: str
    sender_name: str | None = None
    sender_avatar: str | None = None
    channel_name: str | None = None
    channel_type: ChannelType | None = None
    attachments: list[Attachment] | None = None
    response_context: ResponseContext | None = None
    performative: Performative | None = None
    conversation_id: str | None = None
    correlation_id: str | None = None
    platform_data: Any = None


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ephemeral notification: delivered to current listeners, never stored."""

    type: SignalType
    state: str
    endpoint_subject: str
    timestamp: datetime
    data: Any = None


def validate_signal(signal: Signal) -> Signal:
    """Return `signal` with its fields checked, or raise `InvalidMessage`."""
    given: object = signal
    if not isinstance(given, Signal):
        raise InvalidMessage(f"expected a Signal, got {type(signal).__name__}")
    try:
        return msgspec.convert(msgspec.to_builtins(signal), Signal)
    except (msgspec.ValidationError, TypeError) as problem:
        raise InvalidMessage(f"invalid signal: {problem}") from None


def encode_payload(payload: object) -> bytes:
    """Encode a payload as JSON. Raises `InvalidMessage` if that is impossible.

    Typed payloads are checked against their type. `msgspec.Raw`, alone or nested, is JSON text and
    is reformatted to one line.
    """
    if isinstance(payload, _BYTES):
        raise InvalidMessage("payload is bytes, which JSON cannot hold: encode it as base64 text")
    try:
        encoded = _encode(payload)
        if _is_plain(payload):
            return encoded
        if isinstance(payload, msgspec.Struct):
            msgspec.json.decode(encoded, type=type(payload))
        # Raw parts were copied unchecked, so the result is decoded here. A syntax check is not
        # enough: 1e999 is a valid JSON number that no decoder accepts.
        _read(encoded)
        if not encoded.isascii():
            encoded.decode()
        if _LF in encoded or _CR in encoded:  # in strings both are escaped
            encoded = msgspec.json.format(encoded, indent=-1)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidMessage(f"payload cannot be sent as JSON: {problem}") from None
    if is_too_deep(encoded):
        raise InvalidMessage(
            f"payload is nested more than {payload_nesting_max_levels} levels deep: flatten it"
        )
    return encoded


def _is_plain(payload: object) -> bool:
    """Return whether this is a dict of plain values and lists of them, as most payloads are.

    Such a payload needs no further check: it holds no `msgspec.Raw` and no deep nesting.
    """
    if type(payload) is not dict:
        return False
    for value in payload.values():
        kind = type(value)
        if kind not in _PLAIN_TYPES and (
            kind is not list or not _PLAIN_TYPES.issuperset(map(type, value))
        ):
            return False
    return True


def is_too_deep(encoded: bytes) -> bool:
    """Return whether the nesting of a JSON text exceeds the limit: decoders overflow their stack at
    some depth, and a stored payload must be readable."""
    if encoded.count(b"[") + encoded.count(b"{") <= payload_nesting_max_levels:
        return False
    outline = _outline(encoded)
    for _ in range(payload_nesting_max_levels):  # each time, the innermost level goes
        outline = outline.replace(b"[]", b"")
        if not outline:
            return False
    return True


def _outline(encoded: bytes) -> bytes:
    """Return only the brackets outside strings, all turned square."""
    if b"\\" in encoded:
        encoded = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    outline = encoded.translate(_SQUARE, _PLAIN).replace(b'""', b"")
    return _STRING.sub(b"", outline)


_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)
_LF, _CR = b"\n\r"  # as integers: searching for a byte is much faster than for a one-byte string
_SQUARE = bytes.maketrans(b"{}", b"[]")
_PLAIN = bytes(set(range(256)) - set(b'[]{}"'))
_STRING = re.compile(rb'"[^"]*"')
