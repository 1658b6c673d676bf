"""The index is derived: if it is lost, damaged, foreign or ahead, it is rebuilt."""

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from waypost import Relay
from waypost.relay.state import checkpoints
from waypost.relay.state.index import Changes
from waypost.testing import ManualClock


def overwritten(index: Path) -> None:
    index.write_bytes(os.urandom(index.stat().st_size))


def emptied(index: Path) -> None:
    os.truncate(index, 0)


def halved(index: Path) -> None:
    os.truncate(index, index.stat().st_size // 2)


def cut_within_a_page(index: Path) -> None:
    os.truncate(index, index.stat().st_size - 1000)


def left_without_a_header(index: Path) -> None:
    with index.open("r+b") as file:
        file.write(bytes(100))


def of_another_format(index: Path) -> None:
    with sqlite3.connect(index) as connection:
        connection.execute("update position set format = format + 1")
        connection.execute("delete from messages")  # who knows where it keeps them
    connection.close()


def of_a_later_schema(index: Path) -> None:
    """Write an index of another format: the same tables with other columns."""
    index.unlink()
    with sqlite3.connect(index) as connection:
        for table in ("endpoints", "messages", "last_seen", "duplicates"):
            connection.execute(f"create table {table} (everything blob)")
        connection.execute(
            "create table position (only_row integer primary key, format, seq, at_us, segment, "
            "offset)"
        )
        connection.execute("insert into position values (1, 999, 5, 5, 1, 5)")
    connection.close()


def of_another_program(index: Path) -> None:
    index.unlink()
    with sqlite3.connect(index) as connection:
        connection.execute("create table messages (subject text)")
        connection.execute("create table recipes (title text)")
    connection.close()


def without_its_tables(index: Path) -> None:
    with sqlite3.connect(index) as connection:
        connection.execute("drop table messages")
        connection.execute("drop table endpoints")
    connection.close()


@pytest.mark.parametrize(
    "spoil",
    [
        overwritten,
        emptied,
        halved,
        cut_within_a_page,
        left_without_a_header,
        of_another_format,
        of_a_later_schema,
        of_another_program,
        without_its_tables,
    ],
)
async def test_an_index_that_cannot_be_used_is_made_again(
    copy: Path, spoil: Callable[[Path], None]
) -> None:
    expected = plain_journal.add_up_directory(copy)
    spoil(copy / "index.db")
    await assert_goes_on(copy, expected)


async def test_an_index_broken_at_any_page_is_made_again(history: Path, tmp_path: Path) -> None:
    expected = plain_journal.add_up_directory(history)
    size = (history / "index.db").stat().st_size
    with seeded() as chance:
        for page in range(0, size, 4096):
            data = shutil.copytree(history, tmp_path / str(page))
            with (data / "index.db").open("r+b") as file:
                file.seek(page)
                file.write(chance.randbytes(4096))
            try:
                await assert_goes_on(data, expected)
            except BaseException as problem:
                problem.add_note(f"page at byte {page} of {size}")
                raise


async def test_an_index_position_that_is_not_a_commit_is_not_used(copy: Path) -> None:
    expected = plain_journal.add_up_directory(copy)
    with sqlite3.connect(copy / "index.db") as connection:
        connection.execute("update position set offset = 0, segment = 999999, seq = 999998")
    connection.close()
    await assert_goes_on(copy, expected)


async def test_ids_and_pairs_are_remembered_without_an_index(copy: Path) -> None:
    expected = plain_journal.add_up_directory(copy)
    forget_index(copy)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        seen = relay._runtime.ledger.state.last_seen
        assert {pair: seen.get(pair) for pair in expected.last_seen} == expected.last_seen
        before = state_of(relay)
        again = await relay.publish("agent.a", "other", sender="agent.x", message_id="last")
        assert (again.message_id, again.delivered_to) == ("last", 1)
        assert state_of(relay) == before


async def test_an_index_ahead_of_the_journal_gives_way(history: Path, tmp_path: Path) -> None:
    """A power cut with `durability: async`: the index was written, the journal's end was not."""
    ends = [end for _, end, _ in plain_journal.batches(only_segment(history).read_bytes())]
    for lost in range(1, len(ends)):
        data = shutil.copytree(history, tmp_path / str(lost))
        os.truncate(only_segment(data), ends[-1 - lost])
        expected = plain_journal.add_up_directory(data)
        async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            assert state_of(relay) == as_state(expected)
            assert relay._runtime.report.index_rebuilt
        shutil.rmtree(data)


async def test_a_journal_whose_end_turned_into_zeros_still_opens(copy: Path) -> None:
    """Some file systems keep the length of what they lost."""
    ends = [end for _, end, _ in plain_journal.batches(only_segment(copy).read_bytes())]
    with only_segment(copy).open("r+b") as file:
        file.seek(ends[-9])
        file.write(bytes(ends[-1] - ends[-9]))
    for _ in range(2):
        async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
            for endpoint in ("agent.a", "agent.b"):
                while leased := await relay.lease(endpoint):
                    await relay.ack(endpoint, [one.id for one in leased])
            result = await relay.publish("agent.b", "on", sender="agent.x")
    forget_index(copy)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert result.message_id in state_of(relay)["order"]["agent.b"]


async def write_large(data: Path, storage: str, count: int = 4) -> list[str]:
    settings = msgspec.structs.replace(SETTINGS, storage=storage)
    async with Relay(data, settings=settings, clock=ManualClock(START_US)) as relay:
        relay.register_endpoint("agent.a")
        ids = []
        for n in range(count):
            payload = {"n": n, "large": "z" * 8_000}
            ids.append((await relay.publish("agent.a", payload, sender="agent.x")).message_id)
    return ids


@pytest.mark.parametrize("storage", ["journal", "maildir"])
@pytest.mark.parametrize("files", ["kept", "lost"])
async def test_a_cut_body_file_costs_the_payloads_in_it_and_nothing_else(
    tmp_path: Path, storage: str, files: str
) -> None:
    data = tmp_path / "data"
    ids = await write_large(data, storage)
    (bodies,) = (data / "journal").glob("*.bodies")
    os.truncate(bodies, 8_000 * 2)
    if files == "lost":
        for path in (data / "mailboxes").glob("*/new/*"):
            path.unlink()
    settings = msgspec.structs.replace(SETTINGS, storage=storage)
    async with Relay(data, settings=settings, clock=ManualClock(START_US)) as relay:
        leased = await relay.lease("agent.a")
        assert [one.payload["n"] for one in leased] == [0]
        assert await relay.ack("agent.a", [one.id for one in leased]) == 1
        result = await relay.publish("agent.a", "w" * 9_000, sender="agent.x")
        (kept,) = await relay.lease("agent.a")
        assert (kept.id, kept.payload) == (result.message_id, "w" * 9_000)
        assert relay.metrics().by_status == {"pending": 0, "scheduled": 0, "leased": 1, "dead": 3}
    async with Relay(data, settings=settings, clock=ManualClock(START_US)) as relay:
        assert relay.metrics().by_status == {"pending": 1, "scheduled": 0, "leased": 0, "dead": 3}
        await relay.dead_letters()
        assert await relay.redrive(ids[1]) == 0  # there is nothing to deliver
        assert [one.id for one in await relay.lease("agent.a")] == [result.message_id]
        assert await relay.purge_dead_letters() == 3


async def test_a_handler_is_not_stopped_by_a_missing_payload(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await write_large(data, "journal")
    (bodies,) = (data / "journal").glob("*.bodies")
    with bodies.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    handled = []
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        relay.subscribe("agent.a", lambda envelope: handled.append(envelope.payload["n"]))
        await relay.idle()
        assert handled == [1, 2, 3]
        assert relay.metrics().by_status == {"pending": 0, "scheduled": 0, "leased": 0, "dead": 1}


async def test_a_missing_body_file_does_not_keep_a_relay_from_opening(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await write_large(data, "maildir")
    for path in (data / "journal").glob("*.bodies"):
        path.unlink()
    shutil.rmtree(data / "mailboxes")
    settings = msgspec.structs.replace(SETTINGS, storage="maildir")
    async with Relay(data, settings=settings, clock=ManualClock(START_US)) as relay:
        assert relay.metrics().by_status["pending"] == 4
        assert await relay.lease("agent.a") == []
        assert relay.metrics().by_status["dead"] == 4


async def test_rebuilding_an_index_leaves_it_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await write_history(data)
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        before = state_of(relay)
        await relay.rebuild_index()
        await relay.publish("agent.b", 1, sender="agent.x")
        await relay.rebuild_index()
        assert state_of(relay)["status"]["agent.a"] == before["status"]["agent.a"]
    plain_journal.assert_index_is_right(data)


async def test_checkpoints_that_fail_now_and_then_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_INTERVAL_S", 0.0)  # one is due at every commit
    data = tmp_path / "data"
    with seeded() as chance:
        for _ in range(6):
            async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
                write = relay._runtime.index.write

                def fail_sometimes(changes: Changes, write: Any = write) -> None:
                    if chance.random() < 0.6:
                        raise sqlite3.OperationalError("database or disk is full")
                    write(changes)

                monkeypatch.setattr(relay._runtime.index, "write", fail_sometimes)
                await publish_and_ack(relay, chance, rounds=30)
            async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
                assert state_of(relay) == as_state(plain_journal.add_up_directory(data))
            plain_journal.assert_index_is_right(data)


async def publish_and_ack(relay: Relay, chance: random.Random, rounds: int) -> None:
    """Publish enough for many checkpoints, with sweeps in between."""
    for n in range(rounds):
        subject = chance.choice(["agent.a", "agent.b", "agent.c"])
        relay.register_endpoint(subject)
        sent = [relay.publish(subject, n, sender="agent.x") for _ in range(chance.randrange(4))]
        await asyncio.gather(*sent)
        leased = await relay.lease(subject, limit=chance.randrange(1, 5))
        await relay.ack(subject, [one.id for one in leased[1:]])
        if chance.random() < 0.3:
            relay.sweep()
        if chance.random() < 0.1:
            relay.unregister_endpoint(subject)
        await asyncio.sleep(0)
