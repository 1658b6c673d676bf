"""Whole batches are told from damage exactly as the relay tells them."""

from pathlib import Path

from tests.pipeline.datasource.lives import START_US, live, relay_at
from waypost.pipeline.datasource.batches import Batch, whole_batches
from waypost.relay.record import segments
from waypost.testing import ManualClock

Piece = tuple[str, int, int]


async def journal_of(tmp_path: Path) -> bytes:
    clock = ManualClock(START_US)
    async with relay_at(tmp_path / "data", clock) as relay:
        await live(relay, clock, rounds=1)
    (path,) = segments.list_segments(tmp_path / "data" / "journal").values()
    return path.read_bytes()


def ours(data: bytes) -> list[Piece]:
    return [
        ("batch", piece.start, piece.end)
        if isinstance(piece, Batch)
        else ("unfinished" if piece.unfinished else "damage", piece.start, piece.end)
        for piece in whole_batches(data)
    ]


def theirs(data: bytes, scratch: Path) -> list[Piece]:
    scratch.write_bytes(data)
    return [
        ("batch", piece.start, piece.end)
        if isinstance(piece, segments.Batch)
        else ("unfinished" if piece.at_tail else "damage", piece.start, piece.end)
        for piece in segments.read_segment(scratch, 1)
    ]


async def test_a_segment_cut_anywhere_is_read_as_the_relay_reads_it(tmp_path: Path) -> None:
    data = await journal_of(tmp_path)
    assert len(ours(data)) > 10
    for end in range(0, len(data), 97):
        assert ours(data[:end]) == theirs(data[:end], tmp_path / "cut.open")


async def test_a_flipped_byte_costs_what_it_costs_the_relay(tmp_path: Path) -> None:
    data = await journal_of(tmp_path)
    costly = 0
    for place in range(0, len(data), 131):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert ours(flipped) == theirs(flipped, tmp_path / "flipped.jsonl")
        costly += any(kind == "damage" for kind, _, _ in ours(flipped))
    assert costly > 50
