"""Waypost as a peer: the relay embedded in the benchmark's own process, with all checks on."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Literal

from bench.peers import PeerError, batch_sizes, require
from bench.workload import PAYLOAD_VARIANTS, make_payload
from waypost import (
    BackpressureConfig,
    QosConfig,
    RateLimitConfig,
    Relay,
    Settings,
    TierLimits,
)

AGENTS = 100
UNREACHED = 1_000_000_000


def open_settings(
    storage: Literal["maildir", "journal"] = "journal",
    durability: Literal["fsync", "async"] = "fsync",
) -> Settings:
    """Return settings with every check on and every limit out of reach."""
    unlimited = TierLimits(UNREACHED, UNREACHED)
    return Settings(
        storage=storage,
        durability=durability,
        rate_limit=RateLimitConfig(max_per_window=UNREACHED),
        backpressure=BackpressureConfig(max_mailbox_size=UNREACHED),
        qos=QosConfig(
            enabled=True,
            tier1=unlimited,
            tier2=unlimited,
            tier3=unlimited,
            inbox_max_bytes=UNREACHED,
        ),
    )


class EmbeddedRelay:
    """`publish` awaited by `in_flight` tasks; `lease` and `ack` in batches of `in_flight`."""

    def __init__(
        self,
        storage: Literal["maildir", "journal"],
        durability: Literal["fsync", "async"],
        *,
        many: bool = False,
    ) -> None:
        suffix = ", publish_many" if many else ""
        self.name = f"Waypost {storage}, {durability}{suffix}"
        self.durable = durability == "fsync"
        self._settings = open_settings(storage, durability)
        self._many = many
        self._payloads = [make_payload(index) for index in range(PAYLOAD_VARIANTS)]
        self._agents = [f"agent.worker-{number:03d}" for number in range(AGENTS)]
        self._directory: Path | None = None
        self._relay: Relay | None = None
        self.publishes_per_commit: dict[int, float] = {}
        """Publishes per commit, and so per sync, by number in flight."""

    @property
    def directory(self) -> Path:
        """The data directory."""
        if self._directory is None:
            raise PeerError("the relay was not started")
        return self._directory

    def available(self) -> str | None:
        """Return None: the relay is always available."""
        return None

    def server_cpu_seconds(self) -> float:
        """Return 0: the relay runs in this process."""
        return 0.0

    async def start(self, data_dir: Path) -> None:
        """Open a relay on an empty directory below `data_dir`."""
        self._directory = Path(tempfile.mkdtemp(prefix="waypost-", dir=data_dir))
        self._relay = Relay(self._directory, settings=self._settings)
        await self._relay.open()
        self._relay.register_endpoint("agent.sink")

    async def publish(self, count: int, in_flight: int) -> float:
        """Return the seconds for `count` confirmed publishes, `in_flight` at any time."""
        work = iter(zip(range(count), cycle(self._payloads), cycle(self._agents), strict=False))
        assert self._relay is not None
        commits_before = self._relay.metrics().commits
        begin = time.perf_counter()
        if self._many:
            delivered = await self._publish_batches(work, in_flight)
        else:
            delivered = sum(await asyncio.gather(*(self._worker(work) for _ in range(in_flight))))
        seconds = time.perf_counter() - begin
        require(delivered == count, f"{delivered} of {count} messages were delivered")
        commits = self._relay.metrics().commits - commits_before
        self.publishes_per_commit[in_flight] = count / commits
        return seconds

    async def consume(self, count: int, in_flight: int) -> float:
        """Return the seconds to lease and acknowledge `count` messages, `in_flight` at a time."""
        assert self._relay is not None
        begin = time.perf_counter()
        for size in batch_sizes(count, in_flight):
            leased = await self._relay.lease("agent.sink", limit=size)
            require(len(leased) == size, f"{len(leased)} of {size} messages were leased")
            await self._relay.ack("agent.sink", [envelope.id for envelope in leased])
        return time.perf_counter() - begin

    async def stop(self) -> None:
        """Close the relay and remove its directory."""
        if self._relay is not None:
            await self._relay.close()
            self._relay = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    async def _worker(self, work: Iterator[tuple[int, dict[str, object], str]]) -> int:
        assert self._relay is not None
        publish, delivered = self._relay.publish, 0
        for _, payload, sender in work:
            result = await publish("agent.sink", payload, sender=sender)
            delivered += result.delivered_to
        return delivered

    async def _publish_batches(
        self, work: Iterator[tuple[int, dict[str, object], str]], size: int
    ) -> int:
        assert self._relay is not None
        delivered = 0
        while batch := [item for _, item in zip(range(size), work, strict=False)]:
            results = await self._relay.publish_many(
                {"subject": "agent.sink", "payload": payload, "sender": sender}
                for _, payload, sender in batch
            )
            delivered += sum(result.delivered_to for result in results)
        return delivered
