"""A mailbox that cannot be created is a rejection of its own, and concerns nobody else."""

import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.directories import no_new_directories
from tests.faults.small_disks import mount_tmpfs, unmount
from tests.relay.observing import events
from waypost import MailboxUnavailable, RateLimitConfig, Reason, Relay, Settings

ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EMFILE, errno.EIO]
SETTINGS = Settings(watch_files=False, rate_limit=RateLimitConfig(max_per_window=3))


@asynccontextmanager
async def relay_on(data: Path) -> AsyncIterator[Relay]:
    """Open a relay that gives each subject a mailbox on its first message."""

    def create_mailbox(subject: str) -> bool:
        relay.register_endpoint(subject)
        return True

    relay = Relay(data, settings=SETTINGS, create_mailbox=create_mailbox)
    async with relay:
        relay.register_endpoint("agent.old")
        yield relay


@pytest.mark.parametrize("number", ERRORS)
async def test_a_message_is_rejected_with_the_reason_and_can_be_sent_again(
    tmp_path: Path, number: int
) -> None:
    async with relay_on(tmp_path) as relay:
        with no_new_directories(number):
            for _ in range(5):  # more than the rate limit: these do not count
                result = await relay.publish("agent.new", 1, sender="agent.x", message_id="one")
                (rejection,) = result.rejected
                assert (result.message_id, result.delivered_to) == ("", 0)
                assert rejection.reason == Reason.MAILBOX_UNAVAILABLE
                assert os.strerror(number) in rejection.detail
            assert (await relay.publish("agent.old", 1, sender="agent.x")).delivered_to == 1
        relay.sweep()
        result = await relay.publish("agent.new", 1, sender="agent.x", message_id="one")
        assert result.delivered_to == 1
        assert relay.get_endpoint("agent.new") is not None
    rejected = events(tmp_path, "rejected")
    assert {event["reason"] for event in rejected} == {"mailbox_unavailable"}


async def test_it_is_a_problem_until_directories_can_be_created_again(tmp_path: Path) -> None:
    async with relay_on(tmp_path) as relay:
        with no_new_directories(errno.ENOSPC):
            await relay.publish("agent.new", 1, sender="agent.x")
            relay.sweep()
            (problem,) = relay.metrics().problems
            assert os.strerror(errno.ENOSPC) in problem
        relay.sweep()
        assert relay.metrics().problems == []


async def test_while_no_directory_can_be_created_no_publish_tries_to(tmp_path: Path) -> None:
    """Each attempt takes system calls, and a stranger can send as often as it likes."""
    tried: list[str] = []

    def note(path: str) -> bool:
        tried.append(path)
        return True

    async with relay_on(tmp_path) as relay:
        with no_new_directories(errno.ENOSPC, note):
            await relay.publish("agent.new", 1, sender="agent.x")
            before = len(tried)
            for n in range(50):
                await relay.publish(f"agent.new{n}", 1, sender=f"agent.x{n}")
        assert len(tried) == before


async def test_one_mailbox_that_cannot_be_created_is_no_problem_of_the_others(
    tmp_path: Path,
) -> None:
    async with relay_on(tmp_path) as relay:
        blocked = relay.register_endpoint("agent.blocked").maildir_path
        relay.unregister_endpoint("agent.blocked")
        await relay.idle()
        assert blocked is not None
        blocked.write_text("not a directory")
        result = await relay.publish("agent.blocked", 1, sender="agent.x")
        assert [one.reason for one in result.rejected] == [Reason.MAILBOX_UNAVAILABLE]
        assert (await relay.publish("agent.new", 1, sender="agent.x")).delivered_to == 1
        assert relay.metrics().problems == []


async def test_a_mailbox_that_could_not_be_created_leaves_nothing_behind(tmp_path: Path) -> None:
    async with relay_on(tmp_path) as relay:
        before = sorted(os.listdir(tmp_path / "mailboxes"))
        without_failed = no_new_directories(errno.ENOSPC, lambda path: path.endswith("/failed"))
        with without_failed, pytest.raises(MailboxUnavailable, match=r"agent\.new"):
            relay.register_endpoint("agent.new")
        assert sorted(os.listdir(tmp_path / "mailboxes")) == before
        assert not relay.inspect().has_mailbox("agent.new")
    assert "agent.new" not in json.dumps(events(tmp_path))


@pytest.mark.process
async def test_a_disk_without_inodes_rejects_mail_for_new_mailboxes_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mount_tmpfs(disk, "nr_inodes=60"):
        pytest.skip("mounting is not allowed here; the tests above pretend")
    try:
        async with relay_on(disk / "data") as relay:
            rejected = 0
            for n in range(20):
                result = await relay.publish(f"agent.new{n}", 1, sender=f"agent.x{n}")
                rejected += [one.reason for one in result.rejected] == [Reason.MAILBOX_UNAVAILABLE]
                assert result.delivered_to or result.rejected
            assert 0 < rejected < 20
            (leased,) = await relay.lease("agent.new0")
            assert await relay.ack("agent.new0", leased.id) == 1
    finally:
        unmount(disk)
