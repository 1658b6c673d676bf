"""Journal segments: sealed by size and age, deleted when no longer needed."""

import json
import os
import sqlite3
import zlib
from pathlib import Path

import pytest

from tests.relay.observing import DAY_MS, UNLIMITED, drafts, events, payloads, segments, send
from waypost import (
    BackpressureConfig,
    Envelope,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Relay,
    TierLimits,
)
from waypost.policy.bounds import batch_max_events, lease_max_messages
from waypost.testing import ManualClock

HOUR_MS = 3_600_000
SHORT = HousekeepingConfig(
    journal_retention_ms=HOUR_MS,
    dead_letter_retention_ms=2 * DAY_MS,
    sweep_interval_ms=DAY_MS,
    segment_max_age_ms=DAY_MS,
)


@pytest.fixture
async def brief(start) -> Relay:
    """A relay that keeps its journal for an hour, and messages for a day."""
    relay: Relay = await start(housekeeping=SHORT, default_ttl_ms=DAY_MS)
    relay.register_endpoint("agent.a")
    return relay


async def seal(relay: Relay) -> None:
    """Seal the current segment."""
    await relay.seal_journal()
    await send(relay, to="agent.nobody")


async def an_hour_later(relay: Relay, clock: ManualClock) -> None:
    """Seal the current segment, let its retention pass, and sweep."""
    await seal(relay)
    clock.advance_ms(HOUR_MS + 1)
    await relay.rebuild_index()
    relay.sweep()
    await relay.idle()


def first_segment(data: Path) -> str:
    return min(segments(data), default="")


async def test_every_batch_is_closed_by_its_count_its_length_and_its_checksum(
    relay: Relay, data: Path
) -> None:
    await relay.publish_many(drafts(3))
    await send(relay)
    (path,) = (data / "journal").glob("*.open")
    batch = b""
    counted = 0
    for line in read_bytes(path).splitlines(keepends=True):
        event = json.loads(line)
        if event["kind"] != "commit":
            batch, counted = batch + line, counted + 1
            continue
        assert (event["count"], event["bytes"]) == (counted, len(batch))
        assert event["crc"] == zlib.crc32(batch)
        batch, counted = b"", 0
    assert batch == b""


async def test_however_many_are_acknowledged_at_once_batches_stay_small(start, data: Path) -> None:
    roomy = BackpressureConfig(max_mailbox_size=10_000)
    relay: Relay = await start(rate_limit=UNLIMITED, storage="journal", backpressure=roomy)
    relay.register_endpoint("agent.a")
    ids = []
    for _ in range(6):
        ids += [one.message_id for one in await relay.publish_many(drafts(1000))]
    assert await relay.ack("agent.a", ids) == 6000
    (path,) = (data / "journal").glob("*.open")
    lines = [json.loads(line) for line in read_bytes(path).splitlines()]
    counts = [line["count"] for line in lines if line["kind"] == "commit"]
    assert sum(counts) == lines[-1]["seq"]
    assert max(counts) < batch_max_events + lease_max_messages


def read_bytes(path: Path) -> bytes:
    return path.read_bytes()


async def test_the_journal_is_readable_by_its_owner_only(relay: Relay, data: Path) -> None:
    await send(relay, "x" * 10_000)
    found = {path.name: os.stat(path).st_mode & 0o777 for path in (data / "journal").iterdir()}
    assert set(found.values()) == {0o600}


async def test_a_segment_is_sealed_when_it_is_large_enough(start, data: Path) -> None:
    relay = await start(
        rate_limit=UNLIMITED, housekeeping=HousekeepingConfig(segment_max_bytes=4096)
    )
    relay.register_endpoint("agent.a")
    for _ in range(30):
        await send(relay, "x" * 500)
    sizes = [os.stat(data / "journal" / name).st_size for name in segments(data)]
    assert len(sizes) > 3
    assert all(4096 <= size < 6000 for size in sizes)


async def test_a_segment_is_sealed_when_it_is_old_enough(
    start, clock: ManualClock, data: Path
) -> None:
    relay = await start(housekeeping=HousekeepingConfig(segment_max_age_ms=HOUR_MS))
    clock.advance_ms(HOUR_MS - 1)
    await relay.idle()
    assert segments(data) == []
    clock.advance_ms(5_000)
    await relay.idle()
    assert len(segments(data)) == 1


async def test_an_empty_segment_is_not_sealed(relay: Relay, data: Path) -> None:
    for _ in range(3):
        await relay.seal_journal()
    assert len(segments(data)) == 1


async def test_a_segment_is_named_after_its_first_event(relay: Relay, data: Path) -> None:
    await relay.seal_journal()
    result = await send(relay)
    await relay.seal_journal()
    last = max((data / "journal").glob("*.jsonl"))
    first_line = json.loads(read_bytes(last).splitlines()[0])
    assert int(last.stem) == first_line["seq"]
    assert first_line["id"] == result.message_id


async def test_a_segment_past_its_retention_is_dropped(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    await seal(brief)
    old = first_segment(data)
    clock.advance_ms(HOUR_MS)
    await brief.rebuild_index()
    brief.sweep()
    await brief.idle()
    assert first_segment(data) == old
    clock.advance_ms(1)
    brief.sweep()
    await brief.idle()
    assert old not in segments(data)


async def test_a_segment_that_the_index_does_not_cover_yet_stays(
    brief: Relay, clock: ManualClock, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(changes: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(brief._runtime.index, "write", fail)
        await an_hour_later(brief, clock)
        assert len(segments(data)) == 1
    await an_hour_later(brief, clock)
    assert segments(data) == []


async def test_a_segment_with_pending_messages_is_kept(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    await send(brief, "x" * 10_000)
    await brief.seal_journal()
    old = first_segment(data)
    await an_hour_later(brief, clock)
    assert first_segment(data) == old
    (envelope,) = await brief.lease("agent.a")
    assert len(envelope.payload) == 10_000


async def test_a_segment_with_leased_messages_is_kept(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    await send(brief, "held")
    await an_hour_later(brief, clock)
    old = first_segment(data)
    await brief.lease("agent.a")
    await an_hour_later(brief, clock)
    assert first_segment(data) == old


async def test_a_segment_with_a_dead_letter_is_kept_until_it_is_purged(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    await send(brief, "x" * 10_000, budget={"call_budget_remaining": 0})
    await an_hour_later(brief, clock)
    (dead_letter,) = await brief.dead_letters()
    assert len(dead_letter.envelope.payload) == 10_000
    old = first_segment(data)
    await brief.purge_dead_letters()
    await an_hour_later(brief, clock)
    assert old not in segments(data)


async def test_a_segment_without_messages_is_deleted_with_its_body_file(
    brief: Relay, clock: ManualClock, data: Path
) -> None:
    result = await send(brief, "x" * 10_000)
    await an_hour_later(brief, clock)
    await brief.ack("agent.a", result.message_id)
    await an_hour_later(brief, clock)
    assert list((data / "journal").glob("*.bodies")) == []


@pytest.mark.parametrize("with_index", [True, False])
async def test_endpoints_outlive_the_segment_they_were_registered_in(
    brief: Relay, start, clock: ManualClock, data: Path, with_index: bool
) -> None:
    brief.register_endpoint("agent.c")
    brief.register_endpoint("agent.gone")
    brief.unregister_endpoint("agent.gone")
    before = brief.list_endpoints()
    for _ in range(3):
        await an_hour_later(brief, clock)
    await brief.close()
    if not with_index:
        (data / "index.db").unlink()
    relay = await start(housekeeping=SHORT)
    assert relay.list_endpoints() == before
    assert [one.subject for one in relay.metrics().endpoints] == ["agent.a", "agent.c"]


@pytest.mark.parametrize("with_index", [True, False])
async def test_messages_with_partly_deleted_histories_are_recovered(
    brief: Relay, start, clock: ManualClock, data: Path, with_index: bool
) -> None:
    """The segment of a message's arrival is deleted, that of its acknowledgement is not."""
    gone = await send(brief, "gone")
    brief.register_endpoint("agent.c")
    await send(brief, "kept", to="agent.c")
    brief.unregister_endpoint("agent.c")
    await brief.seal_journal()
    dropped = first_segment(data)
    clock.advance_ms(HOUR_MS // 2)
    await brief.ack("agent.a", gone.message_id)
    (kept,) = await brief.lease("agent.c")
    await brief.ack("agent.c", kept.id)
    await brief.seal_journal()
    clock.advance_ms(HOUR_MS // 2 + 1)
    await brief.rebuild_index()
    brief.sweep()
    await send(brief, "new")
    await brief.close()
    assert dropped not in segments(data)
    assert len(segments(data)) == 1
    if not with_index:
        (data / "index.db").unlink()
    relay = await start(housekeeping=SHORT)
    assert payloads(await relay.lease("agent.a")) == ["new"]
    assert [one.subject for one in relay.metrics().endpoints] == ["agent.a"]


@pytest.mark.parametrize("index", ["kept", "lost", "damaged"])
async def test_last_seen_pairs_and_duplicate_ids_outlive_their_segments(
    start, clock: ManualClock, data: Path, index: str
) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(0, 0), tier3=TierLimits(9, 9_000))
    fields = {"housekeeping": SHORT, "qos": qos, "rate_limit": RateLimitConfig(max_per_window=9)}
    relay = await start(**fields)
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    await send(relay, to="agent.b", sender="agent.a")  # refused, and seen
    await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    for _ in range(3):
        await an_hour_later(relay, clock)
    assert not any(event.get("id") == "order-1" for event in events(data))
    await relay.close()
    if index == "lost":
        os.unlink(data / "index.db")
    elif index == "damaged":
        os.truncate(data / "index.db", 5000)
    relay = await start(**fields)
    assert relay.metrics().problems == []
    assert (await send(relay, message_id="order-1")).delivered_to == 1
    assert await relay.lease("agent.a") == []
    assert (await send(relay)).delivered_to == 1


async def test_dropping_segments_under_way_disturbs_no_handler(
    brief: Relay, clock: ManualClock
) -> None:
    seen: list[object] = []

    def note(envelope: Envelope) -> None:
        seen.append(envelope.payload)

    brief.subscribe("agent.a", note)
    for number in range(5):
        await send(brief, number)
        await an_hour_later(brief, clock)
    assert seen == [0, 1, 2, 3, 4]
