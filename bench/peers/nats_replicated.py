"""Plain JetStream on one server or on three, with a sync for each message: no Waypost at all."""

from pathlib import Path

from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.nats_servers import NatsServers


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

    async def publishes(self, count: int, in_flight: int) -> float:
        """Return the seconds to publish; the messages are consumed afterwards."""
        seconds = await self.publish(count, in_flight)
        await self.consume(count, 100)
        return seconds

    async def stop(self) -> None:
        """Close both connections, and stop the servers."""
        await super().stop()
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.stop()
