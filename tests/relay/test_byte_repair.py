"""A single flipped byte of a batch is found by its checksum; nothing else is ever changed."""

import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from waypost.relay.journal.segments import Batch, Damage, read_segment
from waypost.relay.verify.byte_repair import (
    FlippedByte,
    correct_byte,
    find_flipped_byte,
    single_byte_changes,
)
from waypost.wire.events import Acked, Commit, encode_event


def batch(count: int = 3) -> bytes:
    events = [Acked(seq=n + 1, at_us=n, id=f"id-{n}", endpoint="agent.a") for n in range(count)]
    lines = b"".join(encode_event(event) + b"\n" for event in events)
    commit = Commit(seq=count, at_us=1, count=count, bytes=len(lines), crc=zlib.crc32(lines))
    return lines + encode_event(commit) + b"\n"


def damage_in(path: Path) -> Damage:
    [damage] = [piece for piece in read_segment(path, 1) if isinstance(piece, Damage)]
    return damage


@given(st.binary(min_size=1, max_size=400), st.data())
def test_the_flipped_byte_is_among_the_possible_changes(
    content: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.integers(1, 255))
    flipped = bytearray(content)
    flipped[at] ^= change
    assert (at, change) in single_byte_changes(bytes(flipped), zlib.crc32(content))


@given(st.binary(min_size=1, max_size=400), st.integers(0, 2**32 - 1))
def test_every_explanation_gives_the_wanted_checksum(content: bytes, crc: int) -> None:
    for at, change in single_byte_changes(content, crc):
        mended = bytearray(content)
        mended[at] ^= change
        assert zlib.crc32(mended) == crc


def test_any_flipped_byte_of_the_events_can_be_correct_byte(tmp_path: Path) -> None:
    segment = tmp_path / "1.jsonl"
    whole = batch()
    lines = whole.rindex(b'{"kind":"commit"')
    for offset in range(lines - 1):  # the last line break belongs to the commit's mark
        content = bytearray(whole)
        content[offset] ^= 0x20
        segment.write_bytes(content)
        flipped = find_flipped_byte(segment, damage_in(segment))
        assert flipped == FlippedByte(offset, content[offset], whole[offset])
        correct_byte(segment, flipped)
        assert segment.read_bytes() == whole


def test_two_flipped_bytes_are_left_alone(tmp_path: Path) -> None:
    segment = tmp_path / "1.jsonl"
    content = bytearray(batch())
    content[10] ^= 1
    content[60] ^= 1
    segment.write_bytes(content)
    assert find_flipped_byte(segment, damage_in(segment)) is None


def test_a_flipped_byte_of_the_commit_line_is_left_alone(tmp_path: Path) -> None:
    segment = tmp_path / "1.jsonl"
    content = bytearray(batch())
    content[-3] ^= 1
    segment.write_bytes(content)
    assert find_flipped_byte(segment, damage_in(segment)) is None


def test_a_correction_that_does_not_decode_to_events_is_dropped(tmp_path: Path) -> None:
    """The corrected lines have the right checksum, but no relay would write them."""
    segment = tmp_path / "1.jsonl"
    lines = b"neither JSON\nnor events\n"
    commit = Commit(seq=2, at_us=1, count=2, bytes=len(lines), crc=zlib.crc32(lines))
    flipped = b"meither JSON\nnor events\n"
    segment.write_bytes(flipped + encode_event(commit) + b"\n")
    assert find_flipped_byte(segment, damage_in(segment)) is None


def test_an_undamaged_batch_needs_no_correction(tmp_path: Path) -> None:
    segment = tmp_path / "1.jsonl"
    segment.write_bytes(batch())
    assert all(isinstance(piece, Batch) for piece in read_segment(segment, 1))
