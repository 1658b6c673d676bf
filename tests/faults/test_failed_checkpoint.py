"""A checkpoint that cannot be written is reported with its reason, and written later."""

import pytest

from tests.eventually import eventually
from tests.faults.small_disks import Disk
from waypost import RateLimitConfig, Relay, Settings

SETTINGS = Settings(storage="journal", watch_files=False, rate_limit=RateLimitConfig(enabled=False))
DISK_FULL = "index not written: database or disk is full"


async def test_a_checkpoint_that_finds_no_room_is_reported_with_that_reason(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    if disk.kind != "tmpfs":
        pytest.skip("the index always has room on the pretended disk")
    async with Relay(disk.directory / "data", settings=SETTINGS) as relay:
        for n in range(2000):
            relay.register_endpoint(f"agent.a{n}")
        await relay.sync()
        disk.fill()
        relay.sweep()
        await eventually(lambda: relay.metrics().problems, "the report of the problem")
        assert relay.metrics().problems == [DISK_FULL]
        assert DISK_FULL in caplog.text
        disk.free()
        relay.sweep()
        await eventually(lambda: not relay.metrics().problems, "a later checkpoint")
