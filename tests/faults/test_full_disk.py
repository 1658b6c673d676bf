"""On a full disk, publishes are rejected, confirmed work is kept, and recovery is automatic."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import plain_journal
from tests.faults.small_disks import LEFT_AFTER_BALLAST, Disk
from waypost import (
    AccessRule,
    BackpressureConfig,
    CircuitBreakerConfig,
    DataDirUnusable,
    PublishResult,
    RateLimitConfig,
    Relay,
    RelayStopped,
    Settings,
)
from waypost.policy.errors import WaypostError

UNSYNCED = "journal, unsynced"
"""`durability: async` with `storage: journal`: the event loop writes itself."""

pytestmark = pytest.mark.parametrize("storage", ["journal", "maildir", UNSYNCED])
PAYLOAD = "x" * 50_000


def settings(storage: str) -> Settings:
    return Settings(
        storage="maildir" if storage == "maildir" else "journal",
        durability="async" if storage == UNSYNCED else "fsync",
        watch_files=False,
        rate_limit=RateLimitConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False),
        # A mailbox file that finds no room counts as a failure, which is not the subject here.
        circuit_breaker=CircuitBreakerConfig(enabled=False),
    )


@asynccontextmanager
async def relay_on(disk: Disk, storage: str) -> AsyncIterator[Relay]:
    async with Relay(disk.directory / "data", settings=settings(storage)) as relay:
        relay.register_endpoint("agent.a")
        await relay.idle()
        yield relay


async def publish(relay: Relay, payload: object = PAYLOAD) -> PublishResult:
    return await relay.publish("agent.a", payload, sender="agent.x")


async def fill_up(relay: Relay) -> list[str]:
    """Publish until the disk is full; return the accepted ids."""
    taken: list[str] = []
    for _ in range(200):
        results = await asyncio.gather(*(publish(relay) for _ in range(5)))
        taken += [result.message_id for result in results if result.delivered_to]
        rejected = [result for result in results if not result.delivered_to]
        assert all(is_full(result) for result in rejected), rejected
        if rejected:
            return taken
    pytest.fail("the disk never got full")


def is_full(result: PublishResult) -> bool:
    reasons = [one.reason for one in result.rejected]
    return (result.message_id, result.delivered_to, reasons) == ("", 0, ["storage_full"])


def assert_nothing_half_written(data: Path) -> None:
    """Assert that the journal consists of complete batches with all their bodies."""
    for path in plain_journal.segments(data):
        content = path.read_bytes()
        found = list(plain_journal.batches(content))
        assert (found[-1][1] if found else 0) == len(content)
        bodies = path.with_suffix(".bodies")
        stored = bodies.read_bytes() if bodies.exists() else b""
        for _, _, events in found:
            for event in events:
                if event.get("body"):
                    offset, length, _ = event["body"]
                    assert json.loads(stored[offset : offset + length]) == PAYLOAD


async def waiting(relay: Relay) -> list[str]:
    """Return every id that can be leased, in order, and release them."""
    found: list[str] = []
    while leased := await relay.lease("agent.a", limit=50):
        found += [one.id for one in leased]
    await relay.nack("agent.a", found)
    return found


async def test_a_full_disk_rejects_publishes_and_still_takes_acks(disk: Disk, storage: str) -> None:
    async with relay_on(disk, storage) as relay:
        disk.fill(leave=LEFT_AFTER_BALLAST)
        taken = await fill_up(relay)
        assert taken
        assert relay.metrics().storage_full
        assert is_full(await publish(relay, "small"))
        assert_nothing_half_written(disk.directory / "data")
        assert await waiting(relay) == taken
        assert await relay.ack("agent.a", taken[:3]) == 3
        assert is_full(await publish(relay, "small"))


async def test_room_on_the_disk_is_noticed_without_a_restart(disk: Disk, storage: str) -> None:
    async with relay_on(disk, storage) as relay:
        kept: list[str] = []
        for _ in range(2):  # the ballast must be there the second time too
            disk.fill(leave=LEFT_AFTER_BALLAST // 2)
            kept += await fill_up(relay)
            relay.sweep()
            assert is_full(await publish(relay)), "nothing was freed yet"
            disk.free()
            relay.sweep()
            result = await publish(relay)
            assert result.delivered_to == 1
            kept.append(result.message_id)
        assert not relay.metrics().storage_full
        assert await waiting(relay) == kept


async def test_messages_confirmed_before_and_while_full_are_there_after_reopening(
    disk: Disk, storage: str
) -> None:
    data = disk.directory / "data"
    async with relay_on(disk, storage) as relay:
        disk.fill(leave=LEFT_AFTER_BALLAST)
        taken = await fill_up(relay)
        acked = taken[1::2]
        assert await relay.ack("agent.a", acked) == len(acked)
    disk.free()
    async with relay_on(disk, storage) as relay:
        assert await waiting(relay) == taken[::2]
        if storage == "maildir":
            plain_journal.assert_files_are(data, plain_journal.add_up_directory(data))
    plain_journal.assert_index_is_right(data)


async def test_a_disk_that_got_full_while_the_relay_was_closed_still_serves_acks_and_reads(
    disk: Disk, storage: str
) -> None:
    async with relay_on(disk, storage) as relay:
        sent = [(await publish(relay, n)).message_id for n in range(20)]
    disk.fill()
    async with relay_on(disk, storage) as relay:
        assert relay.metrics().storage_full
        assert is_full(await publish(relay, "small"))
        leased = await relay.lease("agent.a", limit=10)
        assert [(one.id, one.payload) for one in leased] == list(zip(sent, range(10), strict=False))
        assert await relay.ack("agent.a", sent[:10]) == 10
    async with relay_on(disk, storage) as relay:
        assert await waiting(relay) == sent[10:]
        disk.free()
        relay.sweep()
        assert (await publish(relay)).delivered_to == 1
    plain_journal.assert_index_is_right(disk.directory / "data")


async def test_a_full_disk_does_not_cost_the_index(disk: Disk, storage: str) -> None:
    """It holds last-seen pairs and duplicate ids that the journal may no longer hold."""
    if disk.kind != "tmpfs":
        pytest.skip("the index always has room on the pretended disk")
    data = disk.directory / "data"
    async with relay_on(disk, storage) as relay:
        await publish(relay)
    (data / "journal" / "ballast").unlink(missing_ok=True)
    before = (data / "index.db").read_bytes()
    disk.fill()
    with pytest.raises(DataDirUnusable, match="full"):
        await Relay(data, settings=settings(storage)).open()
    assert (data / "index.db").read_bytes() == before


async def test_a_relay_closed_on_a_full_disk_unlocks_its_directory(
    disk: Disk, storage: str
) -> None:
    async with relay_on(disk, storage) as relay:
        relay.subscribe("agent.b", print)
        disk.fill(leave=LEFT_AFTER_BALLAST // 3)
        taken = await fill_up(relay)
        disk.fill()
    try:  # it may or may not open, but not with an error nobody can understand
        async with relay_on(disk, storage) as relay:
            assert await waiting(relay) == taken
    except WaypostError:
        pass
    disk.free()
    async with relay_on(disk, storage) as relay:
        assert await waiting(relay) == taken
        assert (await publish(relay)).delivered_to == 1


async def test_without_ballast_the_relay_stops_clearly_and_leaves_nothing_half_written(
    disk: Disk, storage: str
) -> None:
    data = disk.directory / "data"
    async with relay_on(disk, storage) as relay:
        first = await publish(relay)
        (data / "journal" / "ballast").unlink()
        disk.fill(leave=8192)
        results = await asyncio.gather(*(publish(relay) for _ in range(8)))
        assert all(is_full(result) for result in results)
        assert_nothing_half_written(data)
        with pytest.raises(RelayStopped, match="free space"):
            await publish(relay, "small")
        with pytest.raises(RelayStopped, match="free space"):
            await relay.ack("agent.a", first.message_id)
        assert any("free space" in problem for problem in relay.metrics().problems)
    disk.free()
    async with relay_on(disk, storage) as relay:
        assert await waiting(relay) == [first.message_id]
        assert (await publish(relay)).delivered_to == 1


async def test_publish_many_on_a_full_disk_answers_for_each(disk: Disk, storage: str) -> None:
    drafts = [{"subject": "agent.a", "payload": PAYLOAD, "sender": "agent.x"}] * 20
    async with relay_on(disk, storage) as relay:
        disk.fill(leave=100_000)
        # Decided before the disk was found full: the ballast makes room for it.
        assert all(result.delivered_to for result in await relay.publish_many(drafts))
        assert all(is_full(result) for result in await relay.publish_many(drafts))
        assert len(await waiting(relay)) == 20


async def test_rules_on_a_full_disk_are_the_old_ones_or_the_new_ones(
    disk: Disk, storage: str
) -> None:
    async with relay_on(disk, storage) as relay:
        relay.access.add_rule(AccessRule(from_="agent.x", to="agent.a", action="allow"))
        disk.fill()
        many = [
            AccessRule(from_=f"agent.n{n}", to="agent.secret", action="deny") for n in range(300)
        ]
        rejected = False
        for rule in many:
            try:
                relay.access.add_rule(rule)
            except DataDirUnusable:
                rejected = True
                break
        in_force = relay.access.list_rules()
        assert rejected == (len(in_force) < 301)
    disk.free()
    async with relay_on(disk, storage) as relay:
        assert relay.access.list_rules() == in_force
        assert (await publish(relay)).delivered_to == 1


async def test_maintenance_continues_while_the_disk_is_full(disk: Disk, storage: str) -> None:
    """Otherwise nothing would notice that there is room again."""
    async with relay_on(disk, storage) as relay:
        disk.fill(leave=LEFT_AFTER_BALLAST // 3)
        await fill_up(relay)
        disk.fill()
        for n in range(50):
            relay.subscribe(f"agent.wanted-{n}.>", print)
        relay.sweep()
        disk.free()
        relay.sweep()
        assert (await publish(relay)).delivered_to == 1


async def test_a_disk_too_full_for_a_new_name_makes_room_for_it(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, rejected = os.rename, []

    def rename_unless_full(source: Any, path: Any, **more: Any) -> None:
        ballast = tmp_path / "journal" / "ballast"
        if str(path).endswith((".open", ".bodies")) and ballast.exists():
            rejected.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, path, **more)

    async with Relay(tmp_path, settings=settings(storage)) as relay:
        relay.register_endpoint("agent.a")
        await relay.seal_journal()
        monkeypatch.setattr(os, "rename", rename_unless_full)
        assert (await publish(relay)).delivered_to == 1
        assert rejected
        assert is_full(await publish(relay))
        monkeypatch.undo()
        relay.sweep()
        assert (await publish(relay)).delivered_to == 1
