"""The port to a log that several nodes share, in which the batches of one journal are replicated.

Rule 1  A record is one batch of the journal, byte for byte as in the segment file, with its large
        payloads. It is in the log as a whole or not at all.
Rule 2  An append names the position it expects at the end of the log, so of two writers that
        expect the same one only one can succeed. That is the only lock there is.
Rule 3  An append whose outcome is not known is neither done nor failed: the caller reads the tail.
Rule 4  A record has the hash of the one before it. Whether a batch is in the log is a comparison
        of hashes, never of numbers alone.

It does not know who may write, or what events mean.
"""

import hashlib
from typing import NamedTuple, Protocol

import msgspec

NO_HASH = ""
"""The hash before the first record."""


class Header(msgspec.Struct, frozen=True):
    """A record without its content.

    Its lines begin at `offset` of the segment `segment`, its large payloads at `bodies_offset` of
    the file beside it. With `seal`, the segment ends after it. A record without lines only seals,
    and keeps the hash of the record before it. `node` wrote it as the owner of `epoch`.
    """

    segment: int
    offset: int
    bodies_offset: int
    seal: bool
    hash: str
    prev: str
    epoch: int
    node: str

    def is_same(self, other: "Header") -> bool:
        """Return whether both describe the same batch, no matter who appended it."""
        mine = (self.hash, self.segment, self.offset, self.seal)
        return mine == (other.hash, other.segment, other.offset, other.seal)


class Record(msgspec.Struct, frozen=True):
    """One batch: `lines` with the commit line, and the large payloads it refers to first."""

    header: Header
    lines: bytes
    bodies: bytes = b""


class Entry(NamedTuple):
    """A record and its position in a log. Positions grow; they differ between logs."""

    position: int
    record: Record


class Tail(NamedTuple):
    """The end of a log: the position to expect there, and the last record's header."""

    position: int
    header: Header | None

    @property
    def hash(self) -> str:
        """The hash that the next record continues."""
        return self.header.hash if self.header is not None else NO_HASH

    @property
    def epoch(self) -> int:
        """The epoch of the last owner that wrote; 0 in an empty log."""
        return self.header.epoch if self.header is not None else 0


class Appended(NamedTuple):
    """The record is in the log, and stays there if the log keeps its promise."""

    position: int


class Conflict(NamedTuple):
    """The record is not in the log by this call: its end is not where it was expected."""

    position: int


class Unknown(NamedTuple):
    """The record may be in the log or not, or may still get there."""

    why: str


Outcome = Appended | Conflict | Unknown


class Log(Protocol):
    """A log of records. Its methods raise `LogUnavailable` after a timeout of their own."""

    async def append(self, expected: int, record: Record) -> Outcome:
        """Append a record if the log ends at the position `expected`.

        Raise `LogUnusable` if it can never be appended.
        """
        ...

    async def read(self, after: int, wait_s: float = 0.0) -> list[Entry]:
        """Return the next records after a position, in order; none if there are none.

        Wait up to `wait_s` for the first. The first one returned is the oldest that is left if
        older ones are past the log's retention.
        """
        ...

    async def tail(self) -> Tail:
        """Return the end of the log."""
        ...

    async def close(self) -> None:
        """Free what the log holds open; it is not used any more."""
        ...


def hash_of(lines: bytes | bytearray) -> str:
    """Return the hash of a batch: SHA-256 of its lines, with the commit line, in hex."""
    return hashlib.sha256(lines).hexdigest()
