"""The mark of the last batch that the replicated log is known to hold, in `<journal>/confirmed`.

It is written after each confirmation and never synced: it may be behind after a crash of the
machine, and is never ahead. It spares reading the log from its beginning, and it is the evidence
when the log has lost a batch: what it names was confirmed.

Failures and answers:
  missing, torn or damaged  as if there were none: the log is compared from its beginning
  ahead of the segments     (unsynced bytes were lost) the same
"""

import os
from pathlib import Path

import msgspec

_BYTES = 512


class Confirmed(msgspec.Struct, frozen=True, array_like=True):
    """The batch at `position` of the log has `hash`, its last event has the number `seq`, and its
    lines end at `offset` of `segment`, which was `sealed` there."""

    position: int = 0
    hash: str = ""
    seq: int = 0
    segment: int = 1
    offset: int = 0
    sealed: bool = False

    def is_after(self, segment: int, offset: int) -> bool:
        """Return whether a batch that begins at this place was confirmed."""
        return (self.segment, self.offset) > (segment, offset)


class ConfirmedMark:
    """The file, held open. `last` is what was read or written last."""

    def __init__(self, directory: Path) -> None:
        path = directory / "confirmed"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.last = _decode(os.pread(self._file, _BYTES, 0))

    def set(self, confirmed: Confirmed) -> None:
        """Write the mark over the one before. Raises `OSError`."""
        self.last = confirmed
        os.pwrite(self._file, msgspec.json.encode(confirmed).ljust(_BYTES), 0)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_mark(directory: Path) -> Confirmed:
    """Return the mark of a journal that another process may have open."""
    try:
        with (directory / "confirmed").open("rb") as file:
            return _decode(file.read(_BYTES))
    except FileNotFoundError:
        return Confirmed()


def _decode(content: bytes) -> Confirmed:
    try:
        return msgspec.json.decode(content, type=Confirmed)
    except msgspec.MsgspecError:
        return Confirmed()
