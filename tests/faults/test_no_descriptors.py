"""A process that has run out of file descriptors goes on, and loses nothing."""

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.serve_process import User, serving
from tests.eventually import eventually, eventually_blocking
from tests.faults import plain_journal
from tests.faults.descriptors import no_descriptors
from waypost import RateLimitConfig, Relay, Settings
from waypost.client.blocking import connect
from waypost.client.identity import Identity
from waypost.policy.reasons import Reason
from waypost.relay.data_dir import endpoint_hash
from waypost.relay.journal.segment_files import SegmentFiles

LARGE = "x" * 5000
storages = pytest.mark.parametrize("storage", ["journal", "maildir"])


def settings(storage: str) -> Settings:
    return Settings(
        storage=storage,  # type: ignore[arg-type]
        watch_files=False,
        rate_limit=RateLimitConfig(enabled=False),
    )


async def publish(relay: Relay, payload: object = LARGE) -> str:
    result = await relay.publish("agent.a", payload, sender="agent.x")
    assert result.delivered_to == 1, result
    return result.message_id


@storages
async def test_a_large_message_and_a_new_segment_need_no_new_descriptor(
    tmp_path: Path, storage: str
) -> None:
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        relay.register_endpoint("agent.a")
        await relay.sync()
        with no_descriptors():
            sent = [await publish(relay)]
            await relay.seal_journal()
            sent += [await publish(relay, 1), await publish(relay, 2)]
        sent.append(await publish(relay))
        await relay.idle()
        if storage == "maildir":
            (names,) = plain_journal.files(tmp_path).values()
            assert sorted(names) == sorted(sent)
        assert relay.metrics().problems == []
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == sent


@storages
async def test_without_spare_files_messages_wait_and_others_are_rejected(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        relay.register_endpoint("agent.a")
        await relay.sync()
        with no_descriptors() as take_freed, monkeypatch.context() as patch:
            # Another part of the process is always quicker to use a descriptor.
            patch.setattr(SegmentFiles, "replenish", lambda files: take_freed())
            first = [await publish(relay)]
            await relay.seal_journal()
            first.append(await publish(relay, 1))
            await relay.seal_journal()
            waiting = asyncio.create_task(publish(relay))
            await eventually(lambda: relay.metrics().storage_full, "the report of the problem")
            rejected = await relay.publish("agent.a", LARGE, sender="agent.x")
            assert rejected.rejected[0].reason == Reason.STORAGE_FULL
            assert "file descriptor" in rejected.rejected[0].detail
            assert not waiting.done()
        sent = [*first, await waiting, await publish(relay)]
        assert not relay.metrics().storage_full
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == sent


@storages
async def test_stored_messages_are_read_and_acknowledged(tmp_path: Path, storage: str) -> None:
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        relay.register_endpoint("agent.a")
        sent = []
        for _ in range(3):
            sent += [await publish(relay), await publish(relay, 1)]
            await relay.seal_journal()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        with no_descriptors():
            assert [one.id for one in await relay.lease("agent.a")] == sent
            relay.sweep()
            assert await relay.ack("agent.a", sent) == len(sent)
        await publish(relay)
        assert await relay.dead_letters() == []
        assert len(await relay.lease("agent.a")) == 1


async def test_access_rules_stay_in_force_if_their_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "access-rules.json").write_text(
        '[{"from": "agent.mallory", "to": ">", "action": "deny"}]'
    )
    async with Relay(tmp_path, settings=settings("journal")) as relay:
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            relay.access.reload()
        assert relay.access.check_access("agent.x", "agent.a").allowed
        assert not relay.access.check_access("agent.mallory", "agent.a").allowed
        assert relay.access.problem == ""


@pytest.mark.process
def test_idle_connections_that_take_every_descriptor_stop_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as relay, ExitStack() as idle:
        pid = relay.process.pid
        host, port = relay.url.removeprefix("http://").split(":")
        agent = idle.enter_context(connect(relay.url, Identity.new("agent.x")))
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(one) for one in os.listdir(f"/proc/{pid}/fd")}
        free = next(one for one in range(len(used) + 1) if one not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        for _ in range(10):
            idle.enter_context(socket.create_connection((host, int(port))))
        eventually_blocking(lambda: "Too many open files" in relay.log, "the last descriptor")
        for _ in range(3):
            assert agent.send("agent.a", LARGE).delivered_to == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert agent.send("agent.a", LARGE).delivered_to == 1
        assert httpx.get(f"{relay.url}/readyz", trust_env=False).status_code == 200
        new = relay.data / "mailboxes" / endpoint_hash("agent.a") / "new"
        eventually_blocking(lambda: len(os.listdir(new)) == 4, "the files of the messages")
    assert User("", tmp_path).json("verify", "--data-dir", str(relay.data))["ok"]


@pytest.mark.process
def test_a_journal_that_failed_for_good_ends_the_process_with_its_own_code(tmp_path: Path) -> None:
    with serving(tmp_path, "--storage", "journal") as relay:
        (segment,) = (relay.data / "journal").glob("*.open")
        size = segment.stat().st_size
        resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (size, size))
        relay.user()("send", "agent.a", "1", exits=3)
        assert relay.exit_code() == 4
        assert "waypost: the journal could not be written" in relay.log
