"""Automatic batching: queued operations share a frame, up to the relay's limits.

Each operation is encoded once, when it is queued; a frame joins the encoded parts.
"""

import msgspec

from waypost.policy.bounds import lease_max_messages
from waypost.wire.codecs import Codec
from waypost.wire.frames import Welcome

_HEADER_BYTES = 5
"""Upper bound for the brackets of a list, besides one separator byte per operation."""

_ACK_BYTES = 64
_ID_BYTES = 70
"""Upper bounds for an ack without ids and for one id with its punctuation."""


class FrameLimits(msgspec.Struct, frozen=True):
    """Limits of one frame, from the relay's welcome."""

    frame_max_bytes: int
    operations_max: int

    @classmethod
    def of(cls, welcome: Welcome) -> "FrameLimits":
        """Return the limits of the connection that `welcome` opened."""
        return cls(welcome.frame_max_bytes, max(1, welcome.operations_max))

    @property
    def ids_max(self) -> int:
        """Return how many ids one `ack` may hold."""
        fitting = (self.frame_max_bytes - _ACK_BYTES) // _ID_BYTES
        return max(1, min(lease_max_messages, fitting))


class FrameBuilder:
    """Collects encoded operations for one frame."""

    def __init__(self, codec: Codec, limits: FrameLimits) -> None:
        self._codec = codec
        self._limits = limits
        self._parts: list[bytes] = []
        self._bytes = _HEADER_BYTES

    def fits(self, part: bytes) -> bool:
        """Return whether one more encoded operation fits. The first always does."""
        if not self._parts:
            return True
        if len(self._parts) >= self._limits.operations_max:
            return False
        return self._bytes + len(part) + 1 <= self._limits.frame_max_bytes

    def add(self, part: bytes) -> None:
        """Add one encoded operation."""
        self._parts.append(part)
        self._bytes += len(part) + 1

    def encoded(self) -> bytes | None:
        """Return the frame, or None without operations."""
        if len(self._parts) <= 1:
            return self._parts[0] if self._parts else None
        return _list_encoders[self._codec.is_text]([msgspec.Raw(part) for part in self._parts])


_list_encoders = {True: msgspec.json.Encoder().encode, False: msgspec.msgpack.Encoder().encode}
