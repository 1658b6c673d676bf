"""Automatic batching: operations that wait are written together, as many as a frame may hold.

Operations are encoded once, when they are made; a frame is put together from the encoded parts.
"""

import msgspec

from waypost.policy.bounds import lease_max_messages
from waypost.wire.frames import Codec, Welcome

_HEADER_BYTES = 5
"""A list costs at most this much besides one byte an operation, in either encoding."""

_ACK_BYTES = 64
_ID_BYTES = 70
"""An ack without its ids, and one id of the longest kind with its punctuation: rounded up."""


class Limits(msgspec.Struct, frozen=True):
    """What one frame may hold, as the relay said in its welcome."""

    frame_max_bytes: int
    operations_max: int

    @classmethod
    def of(cls, welcome: Welcome) -> "Limits":
        """The limits that hold for the connection of `welcome`."""
        return cls(welcome.frame_max_bytes, max(1, welcome.operations_max))

    @property
    def ids_max(self) -> int:
        """How many ids one `ack` may hold."""
        fitting = (self.frame_max_bytes - _ACK_BYTES) // _ID_BYTES
        return max(1, min(lease_max_messages, fitting))


class Frame:
    """One frame in the making."""

    def __init__(self, codec: Codec, limits: Limits) -> None:
        self._codec = codec
        self._limits = limits
        self._parts: list[bytes] = []
        self._bytes = _HEADER_BYTES

    def fits(self, part: bytes) -> bool:
        """Whether one more encoded operation may go along. The first one always may."""
        if not self._parts:
            return True
        if len(self._parts) >= self._limits.operations_max:
            return False
        return self._bytes + len(part) + 1 <= self._limits.frame_max_bytes

    def add(self, part: bytes) -> None:
        """Take one more encoded operation along."""
        self._parts.append(part)
        self._bytes += len(part) + 1

    def encoded(self) -> bytes | None:
        """The frame, or None when there is nothing to write."""
        if len(self._parts) <= 1:
            return self._parts[0] if self._parts else None
        return _list_encoders[self._codec.is_text]([msgspec.Raw(part) for part in self._parts])


_list_encoders = {True: msgspec.json.Encoder().encode, False: msgspec.msgpack.Encoder().encode}
