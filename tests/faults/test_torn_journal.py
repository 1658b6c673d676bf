"""A journal cut anywhere opens with exactly the committed events, and continues from there."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
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
from waypost import HousekeepingConfig, Relay
from waypost.testing import ManualClock


async def cut_and_reopen(history: Path, scratch: Path, offset: int, *, index: bool) -> None:
    """Cut a copy of the journal at `offset`, and assert that complete batches before it survive."""
    data = shutil.copytree(history, scratch / f"cut-{offset}-{index}")
    path = only_segment(data)
    os.truncate(path, offset)
    if not index:
        forget_index(data)
    expected = plain_journal.add_up_directory(data)
    try:
        await assert_goes_on(data, expected)
    except BaseException as problem:
        problem.add_note(f"cut at byte {offset} of {path.name}, index kept: {index}")
        raise
    shutil.rmtree(data)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
async def test_a_cut_at_any_byte_of_the_last_batches_keeps_whole_batches_only(
    history: Path, tmp_path: Path, share: int
) -> None:
    content = only_segment(history).read_bytes()
    ends = [end for _, end, _ in plain_journal.batches(content)]
    assert ends[-1] == len(content)
    # Every byte without the index, which then cannot hide anything; some with it, which is then
    # ahead of the journal. Four shares, for four workers.
    for offset in range(ends[-4] + share, ends[-1] + 1, 4):
        await cut_and_reopen(history, tmp_path, offset, index=False)
    for offset in range(ends[-4] + share, ends[-1] + 1, 97):
        await cut_and_reopen(history, tmp_path, offset, index=True)


async def test_a_cut_anywhere_keeps_whole_batches_only(history: Path, tmp_path: Path) -> None:
    size = only_segment(history).stat().st_size
    with seeded() as chance:
        for _ in range(60):
            offset, index = chance.randrange(size + 1), chance.random() < 0.5
            await cut_and_reopen(history, tmp_path, offset, index=index)


@pytest.mark.parametrize(
    "tail",
    [
        b"\0" * 100_000,
        b"garbage",
        b"\n\n\n",
        b'{"kind":"acked"',
        b'{"kind":"commit"}\n',
        b"\xff" * 99,
        b'{"kind":"acked","id":"x","endpoint":"agent.a","at_us":1}\n' * 2_000,
    ],
    ids=[
        "zeros",
        "text",
        "newlines",
        "half a line",
        "an empty commit",
        "not text",
        "a large batch without its commit",
    ],
)
async def test_uncommitted_bytes_are_cut(copy: Path, tail: bytes) -> None:
    expected = plain_journal.add_up_directory(copy)
    with only_segment(copy).open("ab") as file:
        file.write(tail)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert relay._runtime.report.bytes_cut == len(tail)
        assert relay._runtime.report.damaged == []
    await assert_goes_on(copy, expected)


async def test_a_batch_written_twice_without_its_commit_is_not_counted_twice(copy: Path) -> None:
    expected = plain_journal.add_up_directory(copy)
    content = only_segment(copy).read_bytes()
    *_, (start, end, _) = plain_journal.batches(content)
    with only_segment(copy).open("ab") as file:
        file.write(content[start : end - 10])
    await assert_goes_on(copy, expected)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def removed(path: Path) -> None:
    path.unlink()


def sealed(path: Path) -> None:
    path.rename(path.with_suffix(".jsonl"))


def sealed_and_followed(path: Path) -> None:
    followed(path)
    sealed(path)


def followed(path: Path) -> None:
    following = plain_journal.add_up_directory(path.parents[1]).seq + 1
    (path.parent / f"{following:020d}.open").touch()


@pytest.mark.parametrize("index", [True, False], ids=["index kept", "index lost"])
@pytest.mark.parametrize("change", [emptied, removed, sealed, sealed_and_followed, followed])
async def test_every_state_a_change_of_segments_can_leave_opens(
    copy: Path, change: Callable[[Path], None], index: bool
) -> None:
    change(only_segment(copy))
    if not index:
        forget_index(copy)
    await assert_goes_on(copy, plain_journal.add_up_directory(copy))


async def test_a_sealed_journal_without_a_successor_opens(copy: Path) -> None:
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        await relay.publish("agent.a", 1, sender="agent.x")
        await relay.seal_journal()
    assert [path.suffix for path in plain_journal.segments(copy)] == [".jsonl"]
    await assert_goes_on(copy, plain_journal.add_up_directory(copy))


async def test_a_torn_end_between_two_open_segments_is_read_past(copy: Path) -> None:
    first = only_segment(copy)
    following = plain_journal.add_up_directory(copy).seq + 1
    with first.open("ab") as file:
        file.write(b'{"kind":"acked","seq":')
    (first.parent / f"{following:020d}.open").touch()
    forget_index(copy)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        total = plain_journal.add_up_directory(copy)
        assert state_of(relay) == as_state(total)
        result = await relay.publish("agent.a", "on", sender="agent.x")
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert result.message_id in state_of(relay)["order"]["agent.a"]


async def test_many_small_segments_cut_at_random_add_up(tmp_path: Path) -> None:
    keep = HousekeepingConfig(segment_max_bytes=4096)
    small = msgspec.structs.replace(SETTINGS, housekeeping=keep)
    data = tmp_path / "data"
    with seeded() as chance:
        for _ in range(12):
            await write_history(data, small)
            last = plain_journal.segments(data)[-1]
            if last.suffix == ".open":  # a sealed one was synced before it got its name
                os.truncate(last, chance.randrange(last.stat().st_size + 1))
            if chance.random() < 0.3:
                forget_index(data)
            expected = plain_journal.add_up_directory(data)
            async with Relay(data, settings=small, clock=ManualClock(START_US)) as relay:
                assert state_of(relay) == as_state(expected)
            plain_journal.assert_index_is_right(data)
