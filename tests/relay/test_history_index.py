"""Histories are found by an index: the same events as by a search, and without one."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import DAY_MS, UNLIMITED, drafts, events, send
from waypost import HousekeepingConfig, Relay
from waypost.relay.journal.history import Histories, find_events
from waypost.relay.journal.line_index import index_path
from waypost.testing import ManualClock
from waypost.wire.events import encode_event

SMALL = HousekeepingConfig(segment_max_bytes=4096)


@pytest.fixture
async def busy(start: Start) -> Relay:
    """A relay with an endpoint, many segments and no limits."""
    relay = await start(rate_limit=UNLIMITED, storage="journal", housekeeping=SMALL)
    relay.register_endpoint("agent.a")
    return relay


def lines_of(data: Path, message_id: str) -> list[int]:
    """Return the sequence numbers of the events of one message, read line by line."""
    return [event["seq"] for event in events(data) if event.get("id") == message_id]


def found(histories: Histories, message_id: str) -> list[int]:
    return [event.seq for event in histories.find(message_id)]


def index_files(data: Path) -> list[Path]:
    return sorted((data / "journal").glob("*.lines"))


async def live(relay: Relay, count: int, chance: random.Random) -> list[str]:
    """Publish, lease, ack and nack at random; return the ids."""
    ids = []
    for number in range(count):
        fake = f'{{"kind":"acked","seq":1,"at_us":1,"id":"{chance.choice(ids or ["x"])}"}}'
        result = await send(relay, {"id": chance.choice(ids or ["y"]), "text": f"\n{fake}\n"})
        ids.append(result.message_id)
        if number % 3 == 0:
            for one in await relay.lease("agent.a", limit=2):
                await (relay.ack if chance.random() < 0.7 else relay.nack)("agent.a", one.id)
    await relay.idle()
    return ids


async def test_every_history_is_complete_in_sealed_and_in_open_segments(
    busy: Relay, data: Path
) -> None:
    chance, ids = random.Random(1), []
    histories = Histories(data / "journal")
    for _ in range(10):
        ids += await live(busy, 12, chance)
        for message_id in ids:
            assert found(histories, message_id) == lines_of(data, message_id)
    assert len(index_files(data)) > 5


async def test_a_search_without_the_relay_finds_the_same_with_and_without_indexes(
    busy: Relay, data: Path
) -> None:
    ids = await live(busy, 60, random.Random(2))

    def search(message_id: str) -> list[bytes]:
        return [encode_event(event) for event in find_events(data / "journal", message_id)]

    before = [search(one) for one in ids]
    assert index_files(data) == [], "a reader without the lock changes nothing"
    for one in ids:
        await busy.explain(one)
    assert [search(one) for one in ids] == before
    assert index_files(data)


async def test_an_id_that_occurs_only_in_payloads_has_no_history(busy: Relay) -> None:
    await live(busy, 30, random.Random(3))
    for name in ("x", "y"):
        assert (await busy.explain(name)).steps == []


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, Path.unlink])
async def test_a_damaged_index_is_rebuilt(
    busy: Relay, data: Path, damage: Callable[[Path], None]
) -> None:
    ids = await live(busy, 40, random.Random(4))
    await busy.explain(ids[0])
    for path in index_files(data):
        damage(path)
    histories = Histories(data / "journal")
    assert [found(histories, one) for one in ids] == [lines_of(data, one) for one in ids]


async def test_an_index_is_outdated_when_its_segment_was_repaired(busy: Relay, data: Path) -> None:
    ids = await live(busy, 20, random.Random(5))
    await busy.seal_journal()
    segment = min((data / "journal").glob("*.jsonl"))
    intact = segment.read_bytes()
    segment.write_bytes(intact.replace(ids[0].encode(), ids[0][::-1].encode(), 1))
    histories = Histories(data / "journal")
    damaged = found(histories, ids[0])
    segment.write_bytes(intact)
    os.utime(segment, ns=(1, 1))
    assert found(histories, ids[0]) == lines_of(data, ids[0])
    assert len(damaged) < len(lines_of(data, ids[0]))


async def test_without_room_for_the_index_a_history_is_found_nevertheless(
    busy: Relay, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await live(busy, 20, random.Random(6))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waypost.relay.journal.history.save_index", full)
    assert [len((await busy.explain(one)).steps) > 0 for one in ids] == [True] * len(ids)
    assert index_files(data) == []


async def test_the_index_is_deleted_with_its_segment(
    start: Start, clock: ManualClock, data: Path
) -> None:
    relay = await start(rate_limit=UNLIMITED, storage="journal", housekeeping=SMALL)
    relay.register_endpoint("agent.a")
    ids = [one.message_id for one in await relay.publish_many(drafts(40))]
    await relay.ack("agent.a", ids)
    await relay.seal_journal()
    await relay.explain(ids[0])
    indexed = index_files(data)
    assert indexed
    await send(relay)
    clock.advance_ms(8 * DAY_MS)
    await relay.rebuild_index()
    relay.sweep()
    await relay.idle()
    assert not set(indexed) & set(index_files(data))


async def test_only_the_owner_can_read_an_index(busy: Relay, data: Path) -> None:
    ids = await live(busy, 20, random.Random(7))
    await busy.explain(ids[0])
    assert {path.stat().st_mode & 0o777 for path in index_files(data)} == {0o600}
    sealed = index_files(data)[0].with_suffix(".jsonl")
    assert index_path(sealed) == index_files(data)[0]
