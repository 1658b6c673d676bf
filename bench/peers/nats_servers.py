"""Several nats-servers with JetStream, which form one cluster, and disappear with the benchmark."""

import asyncio
import json
import time
from pathlib import Path

from bench.peers import ServerProcess, require
from bench.peers.nats_jetstream import SYNC_ALWAYS, find_server
from bench.peers.ports import free_ports

CLUSTER = "bench"
ELECTION_SECONDS_MAX = 60.0


class NatsServers:
    """`count` servers on loopback, with a store each below one directory."""

    def __init__(self, data_dir: Path, count: int) -> None:
        self._holder = ServerProcess("nats-servers", data_dir)
        self.directory = self._holder.directory
        self.processes = [ServerProcess("nats", self.directory) for _ in range(count)]
        self._ports = free_ports(2 * count)

    @property
    def urls(self) -> list[str]:
        """The addresses of all servers."""
        return [f"nats://127.0.0.1:{port}" for port in self._ports[: len(self.processes)]]

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all servers so far."""
        return sum(one.cpu_seconds for one in self.processes)

    @property
    def memory_bytes(self) -> int:
        """Resident memory of all servers."""
        return sum(one.memory_bytes for one in self.processes)

    async def start(self) -> None:
        """Start all, and wait until streams can be created."""
        command = find_server()
        require(command is not None, "nats-server was not found")
        for number, process in enumerate(self.processes):
            config = process.directory / "nats.json"
            config.write_text(json.dumps(self._settings(number)))
            process.start([str(command), "-c", str(config)])
        await self._wait_for_leader()

    def stop(self) -> None:
        """Kill all and remove their files."""
        for one in self.processes:
            one.stop()
        self._holder.stop()

    def _settings(self, number: int) -> dict[str, object]:
        clients, routes = self._ports[: len(self.processes)], self._ports[len(self.processes) :]
        settings: dict[str, object] = {
            "server_name": f"n{number}",
            "host": "127.0.0.1",
            "port": clients[number],
            "jetstream": {
                "store_dir": str(self.processes[number].directory / "store"),
                "sync_interval": SYNC_ALWAYS,
            },
        }
        if len(self.processes) > 1:
            settings["cluster"] = {
                "name": CLUSTER,
                "host": "127.0.0.1",
                "port": routes[number],
                "routes": [f"nats://127.0.0.1:{port}" for port in routes],
            }
        return settings

    async def _wait_for_leader(self) -> None:
        """Create and delete a stream with as many copies as there are servers."""
        import nats
        from nats.js.api import StreamConfig

        until = time.monotonic() + ELECTION_SECONDS_MAX
        while True:
            try:
                client = await nats.connect(self.urls[-1], allow_reconnect=False, error_cb=_ignore)
                try:
                    jetstream = client.jetstream()
                    config = StreamConfig(
                        name="probe", subjects=["probe"], num_replicas=len(self.processes)
                    )
                    await jetstream.add_stream(config)
                    await jetstream.delete_stream("probe")
                    return
                finally:
                    await client.close()
            except Exception:
                require(time.monotonic() < until, "the NATS servers did not find each other")
            await asyncio.sleep(0.1)


async def _ignore(problem: Exception) -> None:
    """Do nothing: a server that does not listen yet is asked again."""
