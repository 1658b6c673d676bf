"""One relay at a time owns a data directory, also after `lock` was deleted or the disk failed."""

import asyncio
import errno
import fcntl
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from tests.faults.failing_disk import failing_disk
from waypost import DataDirInUse, DataDirUnusable, Relay, Settings

STORAGE = pytest.mark.parametrize("storage", ["journal", "maildir"])


def relay_on(data: Path, storage: str = "journal", **more: Any) -> Relay:
    settings = Settings(storage=storage, watch_files=False, **more)  # type: ignore[arg-type]
    return Relay(data, settings=settings)


async def in_use_by(data: Path) -> str:
    """Return the text with which a second relay is rejected."""
    with pytest.raises(DataDirInUse) as rejected:
        await relay_on(data).open()
    return str(rejected.value)


async def test_a_second_relay_is_rejected_after_lock_was_deleted(tmp_path: Path) -> None:
    async with relay_on(tmp_path):
        (tmp_path / "lock").unlink()
        await in_use_by(tmp_path)
        await in_use_by(tmp_path)  # the first attempt has made a new file
    async with relay_on(tmp_path):
        pass


async def test_a_second_relay_is_rejected_after_lock_was_replaced(tmp_path: Path) -> None:
    async with relay_on(tmp_path):
        (tmp_path / "lock").unlink()
        (tmp_path / "lock").write_text("")
        await in_use_by(tmp_path)


async def test_a_sweep_makes_a_deleted_lock_again_with_the_owner_in_it(tmp_path: Path) -> None:
    """Earlier versions lock this file only, and so do file systems without directory locks."""
    async with relay_on(tmp_path) as relay:
        (tmp_path / "lock").unlink()
        relay.sweep()
        assert f"(pid {os.getpid()})" in await in_use_by(tmp_path)
        with (tmp_path / "lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert relay.metrics().problems == []


async def test_a_lock_that_another_process_took_over_is_a_problem(tmp_path: Path) -> None:
    """Only an older version can do that, or a relay on another machine, over NFS."""
    async with relay_on(tmp_path) as relay:
        (tmp_path / "lock").unlink()
        with (tmp_path / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            relay.sweep()
            (problem,) = relay.metrics().problems
            assert "in use by another process" in problem
        relay.sweep()
        assert relay.metrics().problems == []


async def test_where_directories_cannot_be_locked_the_file_alone_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(file: Any, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}"):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as on NFS
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    async with relay_on(tmp_path):
        assert f"(pid {os.getpid()})" in await in_use_by(tmp_path)
    async with relay_on(tmp_path):
        pass


@STORAGE
@pytest.mark.parametrize("durability", ["fsync", "async"])
async def test_a_relay_closed_on_a_failing_disk_reports_it_once_and_opens_again(
    tmp_path: Path, storage: str, durability: str
) -> None:
    relay = await relay_on(tmp_path, storage, durability=durability).open()
    relay.register_endpoint("agent.a")
    sent = await relay.publish("agent.a", "x" * 50_000, sender="agent.x")
    with failing_disk(), pytest.raises(DataDirUnusable, match=os.strerror(errno.EIO)):
        await relay.close()
    await relay.close()
    async with relay_on(tmp_path, storage) as again:
        assert [one.id for one in await again.lease("agent.a")] == [sent.message_id]


@STORAGE
async def test_descriptors_are_not_lost_on_a_failing_disk(tmp_path: Path, storage: str) -> None:
    async def open_and_fail() -> None:
        relay = await relay_on(tmp_path, storage).open()
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", "x" * 50_000, sender="agent.x")
        with failing_disk(), pytest.raises(DataDirUnusable):
            await relay.close()

    await open_and_fail()
    gc.collect()  # of what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await open_and_fail()
        await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) == before
