"""Pairs and ids of deleted journal segments: remembered without the index, or reported as lost."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.relay.observing import events, send, write
from tests.relay.test_segments import SHORT, an_hour_later
from waypost import Relay
from waypost.relay.data_dir import DataDir
from waypost.relay.verify.verify import verify
from waypost.testing import ManualClock


@pytest.fixture
async def brief(start) -> Relay:
    """A relay that keeps its journal for an hour."""
    relay: Relay = await start(housekeeping=SHORT)
    relay.register_endpoint("agent.a")
    return relay


async def lose_old_segments(relay: Relay, clock: ManualClock) -> None:
    """Publish to `agent.a` with an id of its own, and let the journal forget it."""
    await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    for _ in range(3):
        await an_hour_later(relay, clock)


@pytest.mark.parametrize("damage", ["missing", "truncated", "overwritten", "of another program"])
async def test_what_neither_index_nor_journal_remembers_is_reported(
    brief: Relay,
    start,
    clock: ManualClock,
    data: Path,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    await lose_old_segments(brief, clock)
    await brief.close()
    os.unlink(data / "index.db")
    remembered = data / "journal" / "remembered.db"
    if damage == "missing":
        os.unlink(remembered)
    elif damage == "truncated":
        os.truncate(remembered, 5000)
    elif damage == "overwritten":
        write(remembered, "not a database" * 1000)
    else:
        os.unlink(remembered)
        sqlite3.connect(remembered).execute("create table last_seen (anything)").connection.close()
    (finding,) = [one for one in verify(DataDir(data)).findings if one.outcome == "lost"]
    assert "duplicate ids from before event" in finding.text
    relay = await start(housekeeping=SHORT)
    (problem,) = relay.metrics().problems
    assert "last-seen pairs and duplicate ids from before event" in problem
    assert problem in caplog.text
    assert (await send(relay)).delivered_to == 1


async def test_a_directory_of_an_older_version_is_given_the_file_by_its_index(
    brief: Relay, start, clock: ManualClock, data: Path
) -> None:
    await lose_old_segments(brief, clock)
    await brief.close()
    os.unlink(data / "journal" / "remembered.db")
    relay: Relay = await start(housekeeping=SHORT)
    relay.sweep()
    await relay.idle()
    await relay.close()
    os.unlink(data / "index.db")
    relay = await start(housekeeping=SHORT)
    assert relay.metrics().problems == []
    assert (await send(relay, message_id="order-1")).delivered_to == 1
    assert await relay.lease("agent.a") == []


async def test_segments_stay_while_what_they_hold_cannot_be_remembered(
    brief: Relay, clock: ManualClock, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remembered = data / "journal" / "remembered.db"
    os.mkdir(remembered)
    await lose_old_segments(brief, clock)
    assert "order-1" in [event.get("id") for event in events(data)]
    assert "remembered.db could not be written" in caplog.text
    os.rmdir(remembered)
    brief.sweep()
    await brief.idle()
    assert "order-1" not in [event.get("id") for event in events(data)]


async def test_verify_restores_what_is_missing_from_one_of_two_places(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    await lose_old_segments(brief, clock)
    await brief.close()
    for lost in ("journal/remembered.db", "index.db"):
        os.unlink(data / lost)
        assert [one.outcome for one in verify(DataDir(data)).findings] == ["found"]
        assert verify(DataDir(data), repair=True).ok
        assert verify(DataDir(data)).findings == []
