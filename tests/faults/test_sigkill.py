"""A relay killed at any moment keeps everything it confirmed.

Each test kills the relay of one directory repeatedly, so that a recovered state is recovered
again.
"""

import asyncio
import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tests.faults import busy_relay, plain_journal
from tests.faults.seeds import seeded
from waypost import Relay

pytestmark = pytest.mark.process

Promise = tuple[str, str]
"""Endpoint and message id."""


@dataclass
class Promises:
    """Everything the relay confirmed before it was killed."""

    published: dict[Promise, tuple[str, int, int]] = field(default_factory=dict)
    acked: set[Promise] = field(default_factory=set)

    def note(self, cycle: int, report: bytes) -> None:
        for line in report.decode().splitlines():
            kind, *words = line.split()
            if kind == "publish":
                endpoint, message_id, sender, n = words
                self.published[endpoint, message_id] = (sender, cycle, int(n))
            elif kind == "ack":
                self.acked.add((words[0], words[1]))


def run_and_kill(directory: Path, storage: str, seed: int) -> bytes:
    """Let a relay work for a while, kill it, and return its confirmations."""
    chance = random.Random(seed)
    # Some are killed while they still recover from the last kill.
    lines = 1 if chance.random() < 0.15 else chance.randrange(2, 500)
    linger_s = chance.uniform(0.0, 0.02)
    command = [sys.executable, busy_relay.__file__, str(directory), storage, str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    report = b""
    deadline = time.monotonic() + 30
    while report.count(b"\n") < lines:
        piece = os.read(child.stdout.fileno(), 65536)
        report += piece
        if not piece or time.monotonic() > deadline:
            break
    until = time.monotonic() + linger_s
    while (left := until - time.monotonic()) > 0:
        if select.select([child.stdout], [], [], left)[0]:
            report += os.read(child.stdout.fileno(), 65536)
    child.kill()
    rest, errors = child.communicate()
    assert child.returncode == -9, f"it ended by itself:\n{errors.decode()}"
    assert not errors, errors.decode()
    return report + rest


def lose_index(directory: Path, chance: random.Random) -> None:
    (directory / "index.db").unlink(missing_ok=True)
    if chance.random() < 0.5:  # SQLite's own files may or may not go with it
        for name in ("index.db-wal", "index.db-shm"):
            (directory / name).unlink(missing_ok=True)


def lose_files(directory: Path, chance: random.Random) -> None:
    """Delete, cut or misplace files of live messages and dead letters."""
    for path in sorted((directory / "mailboxes").glob("*/*/*")):
        fate = chance.random()
        if path.parent.name == "tmp" or fate < 0.4:
            continue
        elsewhere = path.parents[1] / chance.choice(["new", "cur", "failed"]) / path.name
        if fate < 0.55:
            path.unlink()
        elif fate < 0.7:
            os.truncate(path, chance.randrange(path.stat().st_size))
        elif fate < 0.85:
            path.rename(elsewhere)
        elif not elsewhere.exists():
            shutil.copy(path, elsewhere)  # as after a kill between writing there and removing here


def lose_both(directory: Path, chance: random.Random) -> None:
    lose_index(directory, chance)
    lose_files(directory, chance)


def lose_nothing(directory: Path, chance: random.Random) -> None:
    """Damage nothing."""


async def survivors(directory: Path, storage: str) -> dict[str, list[tuple[str, str, int]]]:
    """Open the relay; return id, sender and number of pending messages, by endpoint."""
    settings = msgspec.structs.replace(busy_relay.settings(storage), watch_files=False)
    waiting: dict[str, list[tuple[str, str, int]]] = {}
    async with Relay(directory, settings=settings) as relay:
        while scheduled := relay.inspect().scheduled():
            await relay.wait_until(int(scheduled[-1].deliver_at.timestamp() * 1_000_000) + 1)
        await relay.idle()  # the last may have been queued while the relay was opened
        total = plain_journal.add_up_directory(directory)
        if storage == "maildir":
            plain_journal.assert_files_are(directory, total)
            assert_files_are_whole(directory)
        for endpoint in [one.subject for one in relay.metrics().endpoints]:
            found = []
            while leased := await relay.lease(endpoint, limit=1000):
                found += leased
            waiting[endpoint] = [(one.id, one.sender, one.payload["n"]) for one in found]
            await relay.nack(endpoint, [one.id for one in found])
        dead = {(one.endpoint, one.envelope.id) for one in await relay.dead_letters()}
        assert dead == {(name, one) for name, box in total.boxes.items() for one in box.dead}
    return waiting


def assert_files_are_whole(directory: Path) -> None:
    for path in (directory / "mailboxes").glob("*/*/*"):
        if path.parent.name == "tmp":
            continue
        content = json.loads(path.read_bytes())
        envelope = content["envelope"] if path.parent.name == "failed" else content
        assert envelope["id"] == path.name


def assert_kept(directory: Path, promises: Promises, waiting: dict[str, list]) -> None:
    total = plain_journal.add_up_directory(directory)
    there = {(name, one) for name, found in waiting.items() for one, _, _ in found}
    dead = {(name, one) for name, box in total.boxes.items() for one in box.dead}
    assert promises.published.keys() <= there | dead | total.acked
    assert not promises.acked & (there | dead)
    assert {name: [one for one, _, _ in found] for name, found in waiting.items() if found} == (
        total.order()
    )
    for endpoint, found in waiting.items():
        lines: dict[str, list[tuple[int, int]]] = {}
        for message_id, sender, n in found:
            known = promises.published.get((endpoint, message_id))
            if known is not None:
                assert known[::2] == (sender, n)
                lines.setdefault(sender, []).append(known[1:])
        lines.pop(busy_relay.LATE, None)
        assert all(line == sorted(line) for line in lines.values())
        box = total.box(endpoint)
        due = [box.live[one]["due_us"] for one, sender, _ in found if sender == busy_relay.LATE]
        assert due == sorted(due)


def assert_handled_once(directory: Path, waiting: dict[str, list]) -> None:
    log = directory / "handled"
    handled = log.read_text().split() if log.exists() else []
    assert len(handled) == len(set(handled))
    assert not set(handled) & {one for one, _, _ in waiting.get(busy_relay.HANDLED, [])}


@pytest.mark.parametrize(
    ("storage", "lose", "kills"),
    [
        ("maildir", lose_nothing, 8),
        ("maildir", lose_index, 6),
        ("maildir", lose_files, 8),
        ("maildir", lose_both, 8),
        ("journal", lose_nothing, 12),
        ("journal", lose_index, 8),
    ],
)
def test_a_killed_relay_has_kept_every_confirmed_message(
    tmp_path: Path, storage, lose, kills
) -> None:
    directory, promises = tmp_path / "data", Promises()
    with seeded() as chance:
        for cycle in range(kills):
            promises.note(cycle, run_and_kill(directory, storage, chance.randrange(2**32)))
            lose(directory, chance)
            waiting = asyncio.run(survivors(directory, storage))
            assert_kept(directory, promises, waiting)
            assert_handled_once(directory, waiting)
            plain_journal.assert_index_is_right(directory)
        assert promises.published
        assert promises.acked
