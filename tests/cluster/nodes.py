"""A node of the simulation: a real follower and a real relay on a directory, and a way to die."""

import asyncio
import random
import shutil
from pathlib import Path

from tests.cluster.simulated_log import SimulatedLog
from waypost import RateLimitConfig, Relay, Settings
from waypost.cluster.follower import Follower
from waypost.policy.settings import HousekeepingConfig
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayError
from waypost.relay.relay import Partition
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    rate_limit=RateLimitConfig(enabled=False),
    housekeeping=HousekeepingConfig(segment_max_bytes=4096),
)


class Node:
    """Follows, or owns with an open relay. `directory` changes with every life."""

    def __init__(
        self,
        name: str,
        root: Path,
        shared: SimulatedLog,
        *,
        settings: Settings = SETTINGS,
        partition: Partition | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or ManualClock()
        self._settings = settings
        self._partition = partition
        self.relay: Relay | None = None
        self.follower: Follower | None = None
        self._root = root
        self._shared = shared
        self._life = 0
        self._tasks: set[asyncio.Task[object]] = set()
        self.connection = shared.connect()
        self.directory = root / f"{name}-0"

    @property
    def journal(self) -> Path:
        return self.directory / "journal"

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    async def follow(self) -> None:
        """Copy what the log has."""
        if self.relay is None:
            await self._following().catch_up()

    async def take_over(self) -> None:
        """Try to own the partition."""
        if self.relay is not None:
            return
        ownership = await self._following().take_over(self.name)
        self.follower = None
        relay = Relay(
            self.directory,
            settings=self._settings,
            clock=self.clock,
            ownership=ownership,
            partition=self._partition,
        )
        await relay.open()
        self.relay = relay

    async def step_down(self) -> None:
        """Close the relay, whether it still owns or not."""
        relay, self.relay = self.relay, None
        if relay is not None:
            await relay.close()

    async def run(self, operation: "asyncio._CoroutineLike[object]") -> None:
        """Run an operation until it is done, or waits for the paused log."""
        task = asyncio.ensure_future(operation)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        held = asyncio.ensure_future(self.connection.waiting.wait())
        await asyncio.wait({task, held}, return_when=asyncio.FIRST_COMPLETED)
        held.cancel()
        await asyncio.sleep(0)

    async def resume(self) -> None:
        """Let held calls go on, and wait until they are done."""
        self.connection.resume()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def die(self, choose: random.Random, *, lose_files: bool) -> None:
        """Stop at this moment; what was not synced may be lost."""
        old, connection, relay, follower = (
            self.directory,
            self.connection,
            self.relay,
            self.follower,
        )
        self._life += 1
        self.directory = self._root / f"{self.name}-{self._life}"
        shutil.copytree(old, self.directory, ignore=shutil.ignore_patterns("ballast", "next-*"))
        if lose_files:
            _lose_unsynced(self.journal, choose)
        self.connection = self._shared.connect()
        self.relay = self.follower = None
        connection.cut()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await _bury(relay, follower)
        if self.relay is not None:  # it became the owner with its last breath
            zombie, self.relay = self.relay, None
            await _bury(zombie, None)
        shutil.rmtree(old)

    async def close(self) -> None:
        """Stop in good order."""
        await self.step_down()
        if self.follower is not None:
            follower, self.follower = self.follower, None
            await follower.close()

    def _following(self) -> Follower:
        if self.follower is None:
            data = DataDir(self.directory)
            data.create()
            self.follower = Follower(data, self.connection)
        return self.follower


async def _bury(relay: Relay | None, follower: Follower | None) -> None:
    """Free what a dead node held open."""
    try:
        if relay is not None:
            await relay.close()
        if follower is not None:
            await follower.close()
    except (RelayError, OSError):
        pass


def _lose_unsynced(journal: Path, choose: random.Random) -> None:
    for path in journal.glob("*.open"):
        content = path.read_bytes()
        path.write_bytes(content[: choose.randrange(len(content) + 1)])


def segments_of(journal: Path) -> dict[str, bytes]:
    """Return the lines of every segment, sealed or not."""
    found = sorted([*journal.glob("*.jsonl"), *journal.glob("*.open")])
    return {path.stem: path.read_bytes() for path in found if path.stat().st_size}
