"""Which lines of a segment belong to a message or a thread: a sorted index, so that none has to
be searched.

Rule 1  An index holds a hash of each event's id and the offset of its line, and the same for the
        thread of an arrival, sorted by hash. A reader compares the id in the line: a hash that
        occurs twice costs time, nothing else.
Rule 2  Only lines of valid batches are in it.
Rule 3  The file of a sealed segment's index is disposable. It is valid for one size and one
        modification time of the segment, and with an intact checksum; otherwise it is ignored.

The hash is cryptographic, because senders choose ids: none can create many with the same hash.
"""

import mmap
import os
import re
import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from waypost.wire.journal_batches import ValidBatch, read_batches

_LINE = re.compile(
    rb'\n\{"kind":"[a-z]+","seq":\d+,"at_us":\d+,'
    rb'(?:"id":"([^"\\]+)"(?:,"thread":"([^"\\]+)")?|"ids":\["([^\]\\]+)"\])'
)
_THREAD = b"thread "
"""Before the thread in its hash. No id has a space."""
_HEADER = struct.Struct("<8sQQL")
_MAGIC = b"WPLINES" + (b"3" if sys.byteorder == "little" else b"4")
_KEY_BYTES = 8
_FIELDS_PER_LINE = 2


class LineIndex:
    """Hashes of ids and offsets of lines, sorted. `end` is the end of the last valid batch."""

    def __init__(self, keys: Sequence[int], offsets: Sequence[int], end: int) -> None:
        self._keys = keys
        self._offsets = offsets
        self.end = end

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, message_id: str) -> list[int]:
        """Return the offsets of the lines that probably have this id, ascending."""
        return self._find(message_id.encode(errors="surrogateescape"))

    def find_thread(self, thread: str) -> list[int]:
        """Return the offsets of the lines that are probably of this thread, ascending: with it, or
        of the message whose id it is."""
        name = thread.encode(errors="surrogateescape")
        return sorted([*self._find(name), *self._find(_THREAD + name)])

    def _find(self, name: bytes) -> list[int]:
        key = _key(name)
        begin, end = bisect_left(self._keys, key), bisect_right(self._keys, key)
        return list(self._offsets[begin:end])

    def merged_with(self, later: "LineIndex") -> "LineIndex":
        """Return an index of the lines of both."""
        pairs = sorted([*self._pairs(), *later._pairs()])
        keys, offsets = array("Q", [key for key, _ in pairs]), array("Q", [at for _, at in pairs])
        return LineIndex(keys, offsets, later.end)

    def content(self) -> bytes:
        """Return the entries as bytes."""
        return array("Q", self._keys).tobytes() + array("Q", self._offsets).tobytes()

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return zip(self._keys, self._offsets, strict=True)


def index_lines(data: bytes, base: int = 0) -> LineIndex:
    """Index the valid batches of `data`, which begins at offset `base` of its segment."""
    offsets: dict[bytes, list[int]] = {}
    data, base, end = b"\n" + data, base - 1, 0  # each line begins after a line break
    for batch in read_batches(data, 1):
        if isinstance(batch, ValidBatch):
            end = batch.end
            for line in _LINE.finditer(data, batch.start - 1, batch.stop):
                offset = base + line.start() + 1
                for message_id in (line[1],) if line[1] is not None else line[3].split(b'","'):
                    offsets.setdefault(message_id, []).append(offset)
                if line[2] is not None:
                    offsets.setdefault(_THREAD + line[2], []).append(offset)
    keyed = sorted((_key(message_id), found) for message_id, found in offsets.items())
    keys = array("Q", [key for key, found in keyed for _ in found])
    return LineIndex(keys, array("Q", [at for _, found in keyed for at in found]), base + end)


def index_path(segment: Path) -> Path:
    """Return the path of the index of a sealed segment."""
    return segment.with_suffix(".lines")


def load_index(segment: Path, *, trusted: bool = False) -> LineIndex | None:
    """Return the index of a sealed segment from its file, or None if that is not valid.

    The checksum of a `trusted` file is not computed again.
    """
    try:
        found = segment.stat()
        with index_path(segment).open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    count, rest = divmod(len(content) - _HEADER.size, _FIELDS_PER_LINE * _KEY_BYTES)
    if count < 0 or rest:
        return None
    entries = content[_HEADER.size :]
    magic, size, modified_ns, checksum = _HEADER.unpack(content[: _HEADER.size])
    if (magic, size, modified_ns) != (_MAGIC, found.st_size, found.st_mtime_ns):
        return None
    if not trusted and zlib.crc32(entries) != checksum:
        return None
    numbers = entries.cast("Q")
    return LineIndex(numbers[:count], numbers[count:], found.st_size)


def save_index(segment: Path, index: LineIndex) -> None:
    """Write the index of a sealed segment to its file. Raises `OSError`."""
    found, entries, path = segment.stat(), index.content(), index_path(segment)
    header = _HEADER.pack(_MAGIC, found.st_size, found.st_mtime_ns, zlib.crc32(entries))
    new = path.with_suffix(".lines-new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(header + entries)
    new.replace(path)


def _key(message_id: bytes) -> int:
    return int.from_bytes(blake2b(message_id, digest_size=_KEY_BYTES).digest(), "little")
