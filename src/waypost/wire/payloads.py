"""Typed payloads and signals that agents may agree on.

A payload may be anything JSON can hold. Callers who use these types get them validated when
they publish or signal; nobody has to use them.
"""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from waypost.policy.bounds import payload_nesting_max_levels
from waypost.policy.errors import InvalidMessage

Size = Annotated[int, msgspec.Meta(ge=0)]


class Performative(StrEnum):
    """What kind of speech act a message is."""

    REQUEST = "request"
    INFORM = "inform"
    QUERY = "query"
    PROPOSE = "propose"
    ACCEPT = "accept"
    REJECT = "reject"
    CFP = "cfp"
    FAILURE = "failure"


class ChannelType(StrEnum):
    """Where a human-facing message was written."""

    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class SignalType(StrEnum):
    """What an ephemeral signal is about."""

    TYPING = "typing"
    PRESENCE = "presence"
    READ_RECEIPT = "read_receipt"
    DELIVERY_RECEIPT = "delivery_receipt"
    PROGRESS = "progress"
    BACKPRESSURE = "backpressure"


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that goes with a message; `size` in bytes."""

    path: str
    filename: str
    mime_type: str
    size: Size | None = None


class ResponseContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the place a reply will be shown in can take; `max_length` in characters."""

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
    """Something that is true for a moment: delivered to whoever listens now, never stored."""

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
    """A payload as JSON; typed payloads are checked against their type. `InvalidMessage` if not.

    `msgspec.Raw`, alone or within, is taken as JSON text and made to fit on one line.
    """
    if isinstance(payload, _BYTES):
        raise InvalidMessage("payload is bytes: encode it to text (base64, say) and say so in it")
    try:
        encoded = _encode(payload)
        if _is_plain(payload):
            return encoded
        if isinstance(payload, msgspec.Struct):
            msgspec.json.decode(encoded, type=type(payload))
        # Raw parts were copied as they are, so they are checked here, wherever they were. Looking
        # at the form alone is not enough: 1e999 has the form of a number, and nobody can read it.
        _read(encoded)
        if not encoded.isascii():
            encoded.decode()
        if _LF in encoded or _CR in encoded:  # in strings both are escaped
            encoded = msgspec.json.format(encoded, indent=-1)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidMessage(f"payload cannot be sent as JSON: {problem}") from None
    brackets = encoded.count(b"[") + encoded.count(b"{")
    if brackets > payload_nesting_max_levels and _too_deep(encoded):
        raise InvalidMessage(
            f"payload is nested more than {payload_nesting_max_levels} levels deep: flatten it"
        )
    return encoded


def _is_plain(payload: object) -> bool:
    """Whether this is a dict of plain values and lists of such: what most messages are. Then the
    encoder has said it all: there is no `msgspec.Raw` within, and no depth."""
    if type(payload) is not dict:
        return False
    for value in payload.values():
        kind = type(value)
        if kind not in _PLAIN_TYPES and (
            kind is not list or not _PLAIN_TYPES.issuperset(map(type, value))
        ):
            return False
    return True


def _too_deep(encoded: bytes) -> bool:
    """Whoever reads JSON runs out of stack at some depth; what is stored must be readable."""
    outline = _outline(encoded)
    for _ in range(payload_nesting_max_levels):  # each time, the innermost level goes
        outline = outline.replace(b"[]", b"")
        if not outline:
            return False
    return True


def _outline(encoded: bytes) -> bytes:
    """Only the brackets outside of strings, all of them square."""
    if b"\\" in encoded:
        encoded = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    outline = encoded.translate(_SQUARE, _PLAIN).replace(b'""', b"")
    return _STRING.sub(b"", outline)


_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)
_LF, _CR = b"\n\r"  # as numbers: looking for one byte is much faster than for a string of one
_SQUARE = bytes.maketrans(b"{}", b"[]")
_PLAIN = bytes(set(range(256)) - set(b'[]{}"'))
_STRING = re.compile(rb'"[^"]*"')
