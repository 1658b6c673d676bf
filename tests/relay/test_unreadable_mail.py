"""Damage found by a running relay costs the damaged message and nothing else."""

import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.relay.observing import files, payloads, send
from waypost import RateLimitConfig, Relay

Start = Callable[..., Awaitable[Relay]]

LARGE = "x" * 9000


def damage_payload(data: Path) -> None:
    [bodies] = (data / "journal").glob("*.bodies")
    content = bytearray(bodies.read_bytes())
    content[100] ^= 1
    bodies.write_bytes(content)


async def with_damaged_payload(start: Start, data: Path) -> Relay:
    """A relay with a damaged large message, and an undamaged one after it."""
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, LARGE, message_id="large")
    await send(relay, "sound", message_id="sound")
    await relay.close()
    damage_payload(data)
    return await start()


async def test_a_lease_skips_a_damaged_payload(start: Start, data: Path) -> None:
    relay = await with_damaged_payload(start, data)
    assert payloads(await relay.lease("agent.a")) == ["sound"]
    [dead_letter] = await relay.dead_letters()
    assert dead_letter.envelope.id == "large"
    assert dead_letter.envelope.payload is None
    assert "unreadable" in dead_letter.reason


async def test_an_unreadable_dead_letter_is_not_redriven(start: Start, data: Path) -> None:
    relay = await with_damaged_payload(start, data)
    await relay.lease("agent.a")
    assert await relay.redrive("large") == 0
    assert len(await relay.dead_letters()) == 1
    assert await relay.purge_dead_letters() == 1


async def test_a_damaged_payload_does_not_keep_the_relay_from_opening(
    start: Start, data: Path
) -> None:
    relay = await with_damaged_payload(start, data)
    await relay.close()
    for file in (data / "mailboxes").glob("*/new/*"):
        file.unlink()
    relay = await start()
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert files(endpoint)["new"] == ["sound"]


async def test_a_damaged_line_in_the_journal_is_skipped_too(start: Start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "damaged", message_id="broken")
    await send(relay, "sound", message_id="sound")
    await relay.close()
    [segment] = (data / "journal").glob("*.open")
    segment.write_bytes(
        segment.read_bytes().replace(b'"payload":"damaged"', b'"payload":(damaged"')
    )
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == ["sound"]
    assert [one.envelope.id for one in await relay.dead_letters()] == ["broken"]


async def test_a_relay_that_sealed_its_last_segment_opens_again(start: Start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, 1)
    await relay.seal_journal()
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == [1]


async def test_a_sealed_segment_of_which_nothing_is_left_is_kept_for_a_person(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.seal_journal()
    await send(relay, 1)
    await relay.seal_journal()
    await relay.close()
    newest = sorted((data / "journal").glob("*.jsonl"))[-1]
    newest.write_bytes(b"nothing but noise\n" * 20)
    (data / "index.db").unlink()
    relay = await start()
    await send(relay, 2)
    await relay.close()
    assert newest.read_bytes() == b"nothing but noise\n" * 20
    assert len(list((data / "journal" / "damaged").iterdir())) == 1
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == [2]


async def test_an_index_that_could_not_be_written_misses_nothing_later(
    start: Start, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    index = relay._runtime.index
    write = index.write

    def fail(_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(index, "write", fail)
    await send(relay, "first")
    await relay.idle()
    relay.sweep()
    await eventually(lambda: relay.metrics().problems, "the failed checkpoint")
    monkeypatch.setattr(index, "write", write)
    await send(relay, "second")
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == ["first", "second"]


async def test_an_invalid_file_whose_name_is_not_text_is_rejected(start: Start, data: Path) -> None:
    relay = await start()
    endpoint = relay.register_endpoint("agent.a")
    await relay.close()
    (endpoint.maildir_path / "new" / os.fsdecode(b"\xff\xfe")).write_text("{}")
    await start()
    assert files(endpoint)["new"] == []


async def test_a_rejected_drop_in_is_kept_across_restarts(start: Start, data: Path) -> None:
    limit = {"rate_limit": RateLimitConfig(max_per_window=1)}
    relay = await start(**limit)
    endpoint = relay.register_endpoint("agent.a")
    await relay.close()
    for name in ("one", "two"):
        content = json.dumps({"sender": "agent.b", "payload": name})
        (endpoint.maildir_path / "new" / name).write_text(content)
    await start(**limit)
    await start(**limit)
    assert files(endpoint)["failed"] == ["two"]


async def test_the_old_file_of_a_dead_letter_is_not_taken_for_a_drop_in(
    start: Start, data: Path
) -> None:
    """The files are as after a crash between writing the dead letter and removing the message."""
    relay = await start()
    endpoint = relay.register_endpoint("agent.a")
    await send(relay, 1, message_id="doomed")
    await relay.idle()
    content = (endpoint.maildir_path / "new" / "doomed").read_bytes()
    message = relay._runtime.ledger.state.mailboxes["agent.a"].live["doomed"]
    relay._runtime.transitions.evict(message, "made room")
    await relay.close()
    (endpoint.maildir_path / "new" / "doomed").write_bytes(content)
    relay = await start()
    assert relay.metrics().by_status == {"pending": 0, "scheduled": 0, "leased": 0, "dead": 1}
    assert files(endpoint)["new"] == []
