"""docs/how-to/back-up-and-restore.md: its copy is usable, even of a busy relay."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_readme import BLOCK, ROOT, read
from waypost import BackpressureConfig, HousekeepingConfig, RateLimitConfig, Relay, Settings

PAGE = "docs/how-to/back-up-and-restore.md"
BUSY = Settings(
    rate_limit=RateLimitConfig(enabled=False),
    backpressure=BackpressureConfig(enabled=False),
    housekeeping=HousekeepingConfig(segment_max_bytes=1_000_000, sweep_interval_ms=100),
)
LARGE = "x" * 6000  # stored in a body file


def copying() -> str:
    [script] = [
        text for kind, text in BLOCK.findall(read(PAGE)) if kind == "sh" and "sqlite3" in text
    ]
    return script


async def publish_until(
    relay: Relay, enough: asyncio.Event, over: asyncio.Event, confirmed: set[str]
) -> None:
    while not over.is_set():
        results = await relay.publish_many(
            {"subject": "agent.a", "payload": LARGE if n % 5 == 0 else n, "sender": "agent.b"}
            for n in range(20)
        )
        confirmed |= {result.message_id for result in results}
        if len(confirmed) > 200:
            enough.set()
        await asyncio.sleep(0)


async def take_a_copy(directory: Path) -> None:
    """Copy as on the page; if a file disappeared meanwhile, copy again."""
    for _ in range(10):
        shutil.rmtree(directory / "copy", ignore_errors=True)
        shell = await asyncio.create_subprocess_exec("sh", "-ec", copying(), cwd=directory)
        if await shell.wait() == 0:
            return
    raise AssertionError("no copy could be taken")


def findings(directory: Path) -> Any:
    """Return the findings of `verify --repair` as JSON."""
    verified = subprocess.run(
        [sys.executable, "-m", "waypost", "verify", "--repair", "--json", "--data-dir", directory],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(verified.stdout)


async def all_mail(directory: Path) -> set[str]:
    async with Relay(directory) as relay:
        found: set[str] = set()
        while got := await relay.lease("agent.a", limit=1000):
            found |= {envelope.id for envelope in got}
        return found


@pytest.mark.process
@pytest.mark.parametrize("storage", ["maildir", "journal"])
async def test_a_copy_taken_under_load_holds_everything_confirmed_before(
    storage: str, tmp_path: Path
) -> None:
    (tmp_path / "relay").mkdir(mode=0o700)
    (tmp_path / "relay" / "config.json").write_text(json.dumps({"storage": storage}))
    confirmed: set[str] = set()
    enough, over = asyncio.Event(), asyncio.Event()
    async with Relay(tmp_path / "relay", settings=BUSY) as relay:
        relay.register_endpoint("agent.a")
        load = asyncio.create_task(publish_until(relay, enough, over, confirmed))
        await enough.wait()
        before = set(confirmed)
        await take_a_copy(tmp_path)
        assert len(confirmed) > len(before), "no publish happened during the copy"
        over.set()
        await load
    found = await asyncio.to_thread(findings, tmp_path / "copy")
    assert found["ok"], found
    assert before <= await all_mail(tmp_path / "copy")
