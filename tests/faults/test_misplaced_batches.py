"""A batch in the wrong place, as a misdirected write leaves it, is reported at the start."""

import shutil
from itertools import combinations
from pathlib import Path

import pytest

from tests.faults.history import SETTINGS, START_US, forget_index, only_segment
from tests.faults.plain_journal import batches
from waypost import RateLimitConfig, Relay, Settings
from waypost.testing import ManualClock

WITH_INDEX = pytest.mark.parametrize("index", ["index kept", "index deleted"])
EQUAL = Settings(storage="journal", watch_files=False, rate_limit=RateLimitConfig(enabled=False))


async def write_equal_batches(data: Path) -> None:
    """Write batches of one length, each with one message."""
    async with Relay(data, settings=EQUAL, clock=ManualClock(START_US)) as relay:
        relay.register_endpoint("agent.a")
        for n in range(10, 30):
            await relay.publish("agent.a", n, sender="agent.x", message_id=f"message-{n}")


async def problems(data: Path) -> list[str]:
    async with Relay(data, settings=EQUAL, clock=ManualClock(START_US)) as relay:
        return relay.metrics().problems


def overwrite(data: Path, *, later: bool) -> None:
    """Write a batch over an earlier one of the same length, or over a later one."""
    segment = only_segment(data)
    content = bytearray(segment.read_bytes())
    spans = [(start, end) for start, end, _ in batches(bytes(content))]
    pairs = [(one, two) for one, two in combinations(spans, 2) if length(one) == length(two)]
    before, after = pairs[len(pairs) // 2]
    source, target = (before, after) if later else (after, before)
    content[slice(*target)] = content[slice(*source)]
    segment.write_bytes(content)


def length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


@WITH_INDEX
@pytest.mark.parametrize("later", [True, False], ids=["over a later one", "over an earlier one"])
async def test_a_batch_written_over_another_is_reported_at_the_start(
    tmp_path: Path, index: str, later: bool
) -> None:
    data = tmp_path / "data"
    await write_equal_batches(data)
    assert await problems(shutil.copytree(data, tmp_path / "good")) == []
    overwrite(data, later=later)
    if index == "index deleted":
        forget_index(data)
    (problem,) = await problems(data)
    assert "out of place" in problem
    assert "waypost verify" in problem


async def test_damage_before_the_index_is_reported_at_the_start(copy: Path) -> None:
    segment = only_segment(copy)
    content = bytearray(segment.read_bytes())
    start, end, _ = list(batches(bytes(content)))[2]
    content[(start + end) // 2] ^= 1
    segment.write_bytes(content)
    async with Relay(copy, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        (problem,) = relay.metrics().problems
    assert f"bytes {start:,} to {end:,}" in problem
