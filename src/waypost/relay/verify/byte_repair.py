"""Corrects a single flipped byte of a damaged batch, with the batch's checksum as proof.

A CRC is linear: the difference between the two checksums depends only on the changed bits and
their distance from the end. Stepping the difference back one byte at a time finds every offset at
which one changed byte explains it. A long batch can have several such offsets by chance, so a
correction must also decode to events with consecutive numbers, and be the only one that does.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.journal.segments import Damage
from waypost.wire.events import COMMIT_PREFIX, Commit, decode_commit, decode_event, split

_POLYNOMIAL = 0xEDB88320


class FlippedByte(msgspec.Struct, frozen=True):
    """The byte at `offset` of the segment is `found` and was `wanted` when it was written."""

    offset: int
    found: int
    wanted: int


def find_flipped_byte(path: Path, damage: Damage) -> FlippedByte | None:
    """Return the one byte of the segment `path` that explains `damage`, or None."""
    with path.open("rb") as file:
        file.seek(damage.start)
        data = file.read(damage.end - damage.start)
    commit_start = data.rfind(b"\n" + COMMIT_PREFIX) + 1
    try:
        commit = decode_commit(data[commit_start:])
    except msgspec.MsgspecError:
        return None
    lines = data[:commit_start]
    if commit.bytes != len(lines):
        return None
    valid = [
        FlippedByte(damage.start + at, lines[at], lines[at] ^ change)
        for at, change in single_byte_changes(lines, commit.crc)
        if _is_valid_batch(lines, at, change, commit)
    ]
    return valid[0] if len(valid) == 1 else None


def correct_byte(path: Path, flipped: FlippedByte) -> None:
    """Write the original byte, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, bytes([flipped.wanted]), flipped.offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def single_byte_changes(data: bytes, wanted_crc: int) -> Iterator[tuple[int, int]]:
    """Yield each (offset, change) for which `data[offset] ^ change` has the wanted CRC-32."""
    difference = zlib.crc32(data) ^ wanted_crc
    for offset in range(len(data) - 1, -1, -1):
        change = _CHANGE.get(difference)
        if change:
            yield offset, change
        low = _BY_TOP_BYTE[difference >> 24]
        difference = ((difference ^ _TABLE[low]) << 8 | low) & 0xFFFFFFFF


def _is_valid_batch(lines: bytes, at: int, change: int, commit: Commit) -> bool:
    """Return whether the changed lines are the events of `commit`."""
    corrected = bytearray(lines)
    corrected[at] ^= change
    if zlib.crc32(corrected) != commit.crc:
        return False
    try:
        numbers = [
            event.seq
            for line in bytes(corrected).split(b"\n")[:-1]
            for event in split(decode_event(line))
        ]
    except msgspec.MsgspecError:
        return False
    return numbers == list(range(commit.seq - commit.count + 1, commit.seq + 1))


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_TABLE = _table()
_CHANGE = {value: index for index, value in enumerate(_TABLE)}
_BY_TOP_BYTE = {value >> 24: index for index, value in enumerate(_TABLE)}
