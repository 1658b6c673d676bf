"""Records that continue each other, as the journal of a relay would write them."""

import zlib

from waypost.relay.journal.log import Header, Record, hash_of
from waypost.wire.events import Commit, EndpointChanged, encode_event


class Batches:
    """Makes records that continue each other, as a journal would."""

    def __init__(self) -> None:
        self.seq = 0
        self.segment = 1
        self.offset = 0
        self.hash = ""

    def make(self, *, size: int = 20, seal: bool = False) -> Record:
        """Make the next record, with one event of about `size` bytes."""
        self.seq += 1
        event = EndpointChanged(
            seq=self.seq, at_us=self.seq, endpoint="a" * size, action="registered"
        )
        line = encode_event(event) + b"\n"
        commit = Commit(
            seq=self.seq, at_us=self.seq, count=1, bytes=len(line), crc=zlib.crc32(line)
        )
        return self._record(line + encode_event(commit) + b"\n", seal=seal)

    def seal_only(self) -> Record:
        return self._record(b"", seal=True)

    def _record(self, lines: bytes, *, seal: bool) -> Record:
        hash_ = hash_of(lines) if lines else self.hash
        header = Header(self.segment, self.offset, 0, seal, hash_, self.hash, 1, "node-1")
        self.hash = hash_
        self.offset += len(lines)
        if seal:
            self.segment, self.offset = self.seq + 1, 0
        return Record(header, lines)
