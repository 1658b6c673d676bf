"""Plain JetStream on one server or on three, with a sync for each message: no Waypost at all."""

import asyncio
from itertools import islice
from pathlib import Path

from bench.peers import batch_sizes, require
from bench.peers.nats_jetstream import RUN_SECONDS_MAX
from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.nats_servers import NatsServers
from bench.round_trips import stopwatch

AWAY = "bench.away"


class PlainJetStream(NatsRoundTrips):
    """`servers` servers, and a stream with a copy on each."""

    def __init__(self, servers: int) -> None:
        super().__init__()
        self.name = f"JetStream alone, {servers} server{'s' * (servers > 1)}"
        self._count = self.replicas = servers
        self._servers: NatsServers | None = None

    @property
    def directory(self) -> Path:
        """The directory of the servers."""
        assert self._servers is not None
        return self._servers.directory

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of all servers so far."""
        return self.cpu_seconds()["NATS servers"]

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by kind of process."""
        assert self._servers is not None
        return {"NATS servers": self._servers.cpu_seconds}

    async def start_server(self, data_dir: Path) -> str:
        """Start the servers; return the address of one of them."""
        self._servers = NatsServers(data_dir, self._count)
        await self._servers.start()
        return self._servers.urls[0]

    async def start(self, data_dir: Path) -> None:
        """Start, with a second stream without a reader."""
        from nats.js.api import StorageType, StreamConfig

        await super().start(data_dir)
        assert self._jetstream is not None
        await self._jetstream.add_stream(
            StreamConfig(
                name="away", subjects=[AWAY], storage=StorageType.FILE, num_replicas=self.replicas
            )
        )

    async def publishes(self, count: int, in_flight: int) -> float:
        """Return the seconds to publish messages that stay in their stream."""
        assert self._jetstream is not None
        async with asyncio.timeout(RUN_SECONDS_MAX):
            with stopwatch() as seconds:
                for size in batch_sizes(count, in_flight):
                    payloads = islice(self._payloads, size)
                    waiting = [await self._jetstream.publish_async(AWAY, one) for one in payloads]
                    confirmed = {(await one).seq for one in waiting}
                    require(len(confirmed) == size, "nats did not confirm every message")
        return seconds[0]

    async def stop(self) -> None:
        """Close both connections, and stop the servers."""
        await super().stop()
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.stop()
