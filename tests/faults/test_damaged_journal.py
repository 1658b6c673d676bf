"""Damage in the middle of a journal costs the damaged batch and nothing else."""

import json
import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import plain_journal
from tests.faults.history import (
    SETTINGS,
    START_US,
    as_state,
    assert_goes_on,
    forget_index,
    only_segment,
    state_of,
    write_history,
)
from tests.faults.seeds import seeded
from waypost import Relay
from waypost.relay.errors import JournalUnreadable
from waypost.testing import ManualClock

Span = tuple[int, int]
Batch = tuple[int, int, list[plain_journal.Event]]


def all_batches(data: Path) -> list[Batch]:
    return list(plain_journal.batches(only_segment(data).read_bytes()))


def without(batches: list[Batch], *lost: int) -> plain_journal.Sum:
    """Return the sum without some batches of arrivals; later events about them are void."""
    gone = {(event.get("endpoint"), event["id"]) for n in lost for event in batches[n][2]}
    kept = [event for n, (_, _, events) in enumerate(batches) if n not in lost for event in events]
    about = ("leased", "acked", "returned", "failed", "expired", "evicted", "redriven")
    return plain_journal.add_up(
        event
        for event in kept
        if event["kind"] not in about or (event["endpoint"], event["id"]) not in gone
    )


def arrivals(batches: list[Batch]) -> list[int]:
    """Return the batches of arrivals only, without the last batch."""
    return [
        number
        for number, (_, _, events) in enumerate(batches[:-1])
        if {event["kind"] for event in events} == {"accepted"}
    ]


def damage(data: Path, start: int, replacement: bytes) -> None:
    with only_segment(data).open("r+b") as file:
        file.seek(start)
        file.write(replacement)


def commit_line(data: Path, batch: Batch) -> Span:
    content = only_segment(data).read_bytes()
    return content.rindex(b'{"kind":"commit"', batch[0], batch[1]), batch[1]


async def assert_set_aside(data: Path, expected: plain_journal.Sum, lost: Span) -> None:
    """Assert that the damage is reported and copied, and the rest works."""
    damaged = only_segment(data).read_bytes()
    forget_index(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay) == as_state(expected)
        report = relay._runtime.report
        assert [(one.start, one.end) for one in report.damaged] == [lost]
        assert any("damage" in problem for problem in relay.metrics().problems)
        before = state_of(relay)
    (copy,) = (data / "journal" / "damaged").iterdir()
    assert copy.read_bytes() == damaged[slice(*lost)]
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay) == before
        result = await relay.publish("agent.b", "on", sender="agent.x")
    forget_index(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert result.message_id in state_of(relay)["order"]["agent.b"]
    assert len(list((data / "journal" / "damaged").iterdir())) == 1


async def test_a_flipped_byte_costs_the_batch_it_is_in(history: Path, tmp_path: Path) -> None:
    with seeded() as chance:
        for round_ in range(25):
            data = shutil.copytree(history, tmp_path / str(round_))
            batches = all_batches(data)
            lost = chance.choice(arrivals(batches))
            start, end, _ = batches[lost]
            offset = chance.randrange(start, commit_line(data, batches[lost])[0] - 1)
            flipped = only_segment(data).read_bytes()[offset] ^ (1 << chance.randrange(8))
            damage(data, offset, bytes([flipped]))
            await assert_set_aside(data, without(batches, lost), (start, end))


async def test_a_damaged_last_batch_is_cut_and_reported(copy: Path) -> None:
    batches = all_batches(copy)
    start, end, _ = batches[-1]
    damage(copy, start + 10, b"\0")
    broken = only_segment(copy).read_bytes()[start:end]
    forget_index(copy)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert any("damage" in problem for problem in relay.metrics().problems)
        assert relay._runtime.report.bytes_cut == end - start
    (kept,) = (copy / "journal" / "damaged").iterdir()
    assert kept.read_bytes() == broken
    await assert_goes_on(copy, plain_journal.add_up(e for _, _, es in batches[:-1] for e in es))


def zeros(chance: random.Random, length: int) -> bytes:
    return bytes(length)


def noise(chance: random.Random, length: int) -> bytes:
    return chance.randbytes(length)


def newlines(chance: random.Random, length: int) -> bytes:
    return b"\n" * length


def many_commits(chance: random.Random, length: int) -> bytes:
    return (b'\n{"kind":"commit"' * length)[:length]


@pytest.mark.parametrize("garbage", [zeros, noise, newlines, many_commits])
async def test_a_damaged_batch_is_the_only_one_lost(
    copy: Path, garbage: Callable[[random.Random, int], bytes]
) -> None:
    batches = all_batches(copy)
    with seeded() as chance:
        lost = chance.choice(arrivals(batches))
        start, end, _ = batches[lost]
        damage(copy, start, garbage(chance, end - start))
        await assert_set_aside_somehow(copy, without(batches, lost))


@pytest.mark.parametrize("garbage", [zeros, noise, newlines])
async def test_a_destroyed_commit_line_costs_its_own_batch_only(
    copy: Path, garbage: Callable[[random.Random, int], bytes]
) -> None:
    batches = all_batches(copy)
    with seeded() as chance:
        lost = chance.choice(arrivals(batches))
        start, end = commit_line(copy, batches[lost])
        damage(copy, start, garbage(chance, end - start))
        await assert_set_aside_somehow(copy, without(batches, lost))


async def test_any_byte_of_a_commit_line_costs_its_own_batch_only(
    history: Path, tmp_path: Path
) -> None:
    batches = all_batches(history)
    plain = arrivals(batches)
    lost = next(number for number in plain if number + 1 in plain)  # the next one would be missed
    expected = without(batches, lost)
    start, end = commit_line(history, batches[lost])
    link = only_segment(history).read_bytes().index(b',"prev":"', start, end)
    for offset in (*range(start, link + 2), *range(end - 3, end)):
        data = shutil.copytree(history, tmp_path / str(offset))
        damage(data, offset, b"#")
        try:
            await assert_set_aside_somehow(data, expected)
        except BaseException as problem:
            problem.add_note(f"byte {offset} of the journal was changed")
            raise
        shutil.rmtree(data)


async def test_any_byte_of_a_link_costs_no_batch_and_is_reported(
    history: Path, tmp_path: Path
) -> None:
    batches = all_batches(history)
    expected = plain_journal.add_up_directory(history)
    start, end = commit_line(history, batches[len(batches) // 2])
    link = only_segment(history).read_bytes().index(b'prev":"', start, end)
    for offset in (*range(link, link + 4), *range(link + 7, end - 3, 8)):
        data = shutil.copytree(history, tmp_path / str(offset))
        damage(data, offset, b"#")
        forget_index(data)
        async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            assert state_of(relay) == as_state(expected)
            assert any("chain is broken" in problem for problem in relay.metrics().problems)
        shutil.rmtree(data)


async def assert_set_aside_somehow(data: Path, expected: plain_journal.Sum) -> None:
    """Assert the same as `assert_set_aside`, for any number of pieces."""
    forget_index(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay) == as_state(expected)
        report = relay._runtime.report
        assert report.damaged
        assert report.bytes_cut == 0
        result = await relay.publish("agent.b", "on", sender="agent.x")
    assert list((data / "journal" / "damaged").iterdir())
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert result.message_id in state_of(relay)["order"]["agent.b"]


async def test_two_damaged_batches_are_both_skipped(copy: Path) -> None:
    batches = all_batches(copy)
    _, first, _, second, *_ = arrivals(batches)
    for lost in (first, second):
        damage(copy, batches[lost][0] + 10, b"\0\0\0")
    await assert_set_aside_somehow(copy, without(batches, first, second))


async def test_a_completely_destroyed_sealed_segment_does_not_affect_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await write_history(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        await relay.seal_journal()
        await relay.publish("agent.b", "in the second", sender="agent.x", message_id="second")
        await relay.seal_journal()
        await relay.publish("agent.b", "in the third", sender="agent.x", message_id="third")
    _, second, _ = plain_journal.segments(data)
    second.write_bytes(os.urandom(second.stat().st_size))
    forget_index(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        waiting = state_of(relay)["order"]["agent.b"]
        assert "third" in waiting
        assert "second" not in waiting
        assert len(waiting) > 1


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "open"])
async def test_a_completely_destroyed_last_segment_is_not_overwritten(
    tmp_path: Path, sealed: bool
) -> None:
    data = tmp_path / "data"
    await write_history(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        await relay.seal_journal()
        await relay.publish("agent.b", "lost", sender="agent.x", message_id="lost")
        if sealed:
            await relay.seal_journal()
    _, second = plain_journal.segments(data)
    destroyed = os.urandom(second.stat().st_size)
    second.write_bytes(destroyed)
    forget_index(data)
    for round_ in range(3):
        async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            result = await relay.publish("agent.b", "kept", sender="agent.x")
            if round_:
                await relay.seal_journal()
        assert not sealed or second.read_bytes() == destroyed
        forget_index(data)
        async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            assert state_of(relay)["order"]["agent.b"][-1] == result.message_id
            leased = await relay.lease("agent.b", limit=1000)
            assert leased[-1].payload == "kept"


async def test_damage_at_the_end_of_a_sealed_segment_does_not_disturb_the_numbers(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    await write_history(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        await relay.seal_journal()
        relay.register_endpoint("agent.c")
    first, second = plain_journal.segments(data)
    os.truncate(first, first.stat().st_size - 40)
    os.truncate(second, 0)
    forget_index(data)
    order = []
    for n in range(3):
        async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            order.append((await relay.publish("agent.b", n, sender="agent.x")).message_id)
            await relay.seal_journal()
        forget_index(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay)["order"]["agent.b"][-3:] == order
    seqs = [int(path.stem) for path in plain_journal.segments(data)]
    assert seqs == sorted(set(seqs))


async def test_a_journal_of_a_newer_version_is_rejected_with_a_reason(copy: Path) -> None:
    content = only_segment(copy).read_bytes()
    line = b'{"kind":"teleported","seq":999,"at_us":1}\n'
    commit = {"kind": "commit", "seq": 999, "at_us": 1, "count": 1, "bytes": len(line)}
    commit["crc"] = zlib.crc32(line)
    closing = json.dumps(commit, separators=(",", ":")).encode() + b"\n"
    only_segment(copy).write_bytes(content + line + closing)
    for _ in range(2):  # refused, not repaired
        with pytest.raises(JournalUnreadable, match="teleported"):
            await Relay(copy, settings=SETTINGS).open()
    only_segment(copy).write_bytes(content)
    await assert_goes_on(copy, plain_journal.add_up_directory(copy))
