"""The event loop syncs small batches itself, as long as the disk is quick."""

import os
import threading
from pathlib import Path

import pytest

from waypost import RateLimitConfig, Relay, RelayStopped, Settings

SETTINGS = Settings(storage="journal", watch_files=False, rate_limit=RateLimitConfig(enabled=False))


class Disk:
    """A disk whose syncs end with `error`; `threads` are those that synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.error: OSError | None = None
        self.threads: list[str] = []

    def __call__(self, descriptor: int) -> None:
        self.threads.append(threading.current_thread().name)
        if self.error is not None:
            raise self.error

    def be(self, *, quick: bool) -> None:
        """Let every sync count as a quick or a slow one, however busy the machine is."""
        limit_s = 600.0 if quick else 0.0
        self._monkeypatch.setattr("waypost.relay.journal.writer._QUICK_SYNC_MAX_S", limit_s)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    pretended = Disk(monkeypatch)
    monkeypatch.setattr(os, "fdatasync", pretended)
    pretended.be(quick=True)
    return pretended


@pytest.fixture
async def relay(tmp_path: Path, disk: Disk) -> Relay:
    relay = await Relay(tmp_path, settings=SETTINGS).open()
    relay.register_endpoint("agent.a")
    await publish(relay)  # opens the files
    disk.threads.clear()
    return relay


async def publish(relay: Relay, payload: object = None) -> str:
    return (await relay.publish("agent.a", payload, sender="agent.x")).message_id


async def test_a_quick_disk_is_synced_by_the_event_loop(relay: Relay, disk: Disk) -> None:
    await publish(relay)
    await publish(relay)
    assert disk.threads == ["MainThread", "MainThread"]
    await relay.close()


async def test_after_a_slow_sync_the_event_loop_is_not_held_up_again(
    relay: Relay, disk: Disk
) -> None:
    disk.be(quick=False)
    for _ in range(3):
        await publish(relay)
    assert disk.threads == ["MainThread", "waypost-journal", "waypost-journal"]
    disk.be(quick=True)
    for _ in range(200):
        await publish(relay)
    assert disk.threads[-1] == "MainThread"
    await relay.close()


async def test_a_large_batch_is_synced_by_the_writer_thread(relay: Relay, disk: Disk) -> None:
    payload = {"text": "x" * 900}
    draft = {"subject": "agent.a", "payload": payload, "sender": "agent.x"}
    await relay.publish_many([draft] * 300)
    assert disk.threads == ["waypost-journal"]
    await relay.close()


async def test_a_failed_sync_of_the_event_loop_stops_the_relay(
    relay: Relay, disk: Disk, tmp_path: Path
) -> None:
    confirmed = await publish(relay)
    disk.error = OSError(5, "Input/output error")
    with pytest.raises(RelayStopped):
        await publish(relay)
    with pytest.raises(RelayStopped):
        await publish(relay)
    await relay.close()
    disk.error = None
    async with Relay(tmp_path, settings=SETTINGS) as again:
        assert [one.id for one in await again.lease("agent.a")][1:] == [confirmed]


async def test_a_served_relay_syncs_in_its_thread_once_messages_arrive_during_a_sync(
    relay: Relay, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.journal.writer._JUST_SYNCED_S", 600.0)
    relay.share_syncs()
    for _ in range(3):
        await publish(relay)  # as if it had arrived during the sync of the one before
    assert disk.threads == ["waypost-journal"] * 3
    await relay.close()


async def test_an_idle_served_relay_syncs_in_its_event_loop(
    relay: Relay, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.journal.writer._JUST_SYNCED_S", 0.0)
    relay.share_syncs()
    for _ in range(3):
        await publish(relay)
    assert disk.threads == ["MainThread"] * 3
    await relay.close()
