"""The two encodings of frames: JSON and MessagePack, with the same fields."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from waypost.policy.errors import InvalidMessage
from waypost.wire.frames import (
    JSON_PROTOCOL,
    MSGPACK_PROTOCOL,
    FrameOperation,
    FromAgent,
    FromRelay,
)

Op = TypeVar("Op", FromRelay, FromAgent)
_Reader = Callable[[bytes | str], Op | list[Op]]


class Codec:
    """Encodes and decodes the frames of one subprotocol. Decoding raises `msgspec.DecodeError`.

    Payloads are JSON text inside the relay, in either encoding: `payload_to_json` converts the raw
    payload of a `Send`, `payload_from_json` converts it back.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.is_text = protocol == JSON_PROTOCOL
        form: Any = msgspec.json if self.is_text else msgspec.msgpack
        self.encode: Callable[[FrameOperation | Sequence[FrameOperation]], bytes] = (
            form.Encoder().encode
        )
        self._read_agent: _Reader[FromAgent] = form.Decoder(FromAgent | list[FromAgent]).decode
        self._read_relay: _Reader[FromRelay] = form.Decoder(FromRelay | list[FromRelay]).decode

    def from_agent(self, frame: bytes | str) -> list[FromAgent]:
        """Return the operations of an agent's frame."""
        if not self.is_text and isinstance(frame, str):
            raise msgspec.DecodeError("expected a binary frame")
        found = self._read_agent(frame)
        return found if isinstance(found, list) else [found]

    def from_relay(self, frame: bytes | str) -> list[FromRelay]:
        """Return the operations of a relay's frame."""
        found = self._read_relay(frame)
        return found if isinstance(found, list) else [found]

    def payload_to_json(self, payload: msgspec.Raw) -> object:
        """Return the payload of a `Send` in a form that `publish` accepts.

        Raises `InvalidMessage`.
        """
        if self.is_text:
            return payload
        try:
            return msgspec.msgpack.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidMessage(f"payload is not MessagePack: {problem}") from None

    def payload_from_json(self, payload: msgspec.Raw) -> msgspec.Raw:
        """Return a payload of JSON text in the encoding of the frame. Raises `InvalidMessage`."""
        if self.is_text:
            return payload
        try:
            return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(payload)))
        except (msgspec.DecodeError, OverflowError) as problem:
            raise InvalidMessage(f"payload cannot be encoded as MessagePack: {problem}") from None


CODECS = {name: Codec(name) for name in (JSON_PROTOCOL, MSGPACK_PROTOCOL)}
