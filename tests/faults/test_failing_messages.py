"""Messages that fail again and again, on a relay that is killed again and again."""

import asyncio
import os
import random
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import failing_relay, plain_journal
from tests.faults.failing_relay import DELIVERIES, MESSAGES, SETTINGS
from tests.faults.seeds import seeded
from tests.relay.observing import events
from waypost import Relay

pytestmark = pytest.mark.process


def run_and_kill(directory: Path, chance: random.Random) -> list[list[str]]:
    """Let the relay work for a while, kill it, and return its confirmations."""
    command = [sys.executable, failing_relay.__file__, str(directory)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    wanted, report = chance.randrange(1, 30), b""
    # Once every message is dead, nothing is confirmed any more.
    while (
        report.count(b"\n") < wanted
        and select.select([child.stdout], [], [], 1.0 if report else 30.0)[0]
    ):
        piece = os.read(child.stdout.fileno(), 65536)
        if not piece:
            break
        report += piece
    child.kill()
    rest, errors = child.communicate()
    assert (child.returncode, errors) == (-9, b"")
    lines = (report + rest).decode().splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n")]


async def dead_letters(directory: Path) -> dict[str, str]:
    async with Relay(directory, settings=SETTINGS) as relay:
        return {one.envelope.id: one.reason for one in await relay.dead_letters()}


def test_kills_lose_no_failed_delivery_and_add_none(tmp_path: Path) -> None:
    directory, published, nacked = tmp_path / "data", set[str](), set[tuple[str, int]]()
    with seeded() as chance:
        for _ in range(12):
            _, *confirmed = run_and_kill(directory, chance)
            for kind, message_id, *attempt in confirmed:
                if kind == "publish":
                    published.add(message_id)
                else:
                    again = (message_id, int(attempt[0]))
                    assert again not in nacked, "an attempt came again after its nack"
                    nacked.add(again)
            dead = asyncio.run(dead_letters(directory))
            failed = Counter(
                event["id"]
                for event in events(directory, "returned", "failed")
                if not event.get("uncounted")
            )
            assert max(failed.values(), default=0) <= DELIVERIES
            assert dead.keys() == {one for one, count in failed.items() if count == DELIVERIES}
            for message_id, attempt in nacked:
                assert failed[message_id] >= attempt
            text = f"max deliveries exceeded ({DELIVERIES}/{DELIVERIES}): error {DELIVERIES}"
            assert set(dead.values()) <= {text}
            plain_journal.assert_index_is_right(directory)
        assert nacked
        assert published <= {event["id"] for event in events(directory, "accepted")}
        assert len(events(directory, "leased")) <= (DELIVERIES + 12) * MESSAGES
