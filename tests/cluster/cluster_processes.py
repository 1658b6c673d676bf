"""A whole cluster of processes on loopback: servers of NATS, and nodes, which can be killed."""

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.peers.ports import free_port
from tests.harness.nats_server import NatsServer
from tests.harness.relay_process import RelayProcess
from waypost.cluster.layout import Layout, create_cluster
from waypost.cluster.shared_files import CONFIG_KEY
from waypost.cluster.shared_values import SharedValues
from waypost.cluster.streams import connect, disconnect

NAME = "tests"
STARTS_MAX = 5
UNLIMITED = {"reliability": {"rateLimit": {"enabled": False}}, "qos": {"enabled": False}}


class NodeProcess:
    """One node; it keeps its port and its directory."""

    def __init__(self, directory: Path, name: str, cluster: str) -> None:
        self.name = name
        self.directory = directory / name
        self.url = f"http://127.0.0.1:{free_port()}"
        self._cluster = cluster
        self._log = directory / f"{name}.log"
        self._process: RelayProcess | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it; again, as a supervisor would, if the servers elect a leader just now."""
        port = self.url.rpartition(":")[2]
        options = ["--port", port, "--data-dir", str(self.directory), "--log-format", "text"]
        node = ["--cluster", self._cluster, "--node", self.name, "--advertise", self.url]
        arguments = ["-m", "waypost", "serve", *options, *node]
        with self._lock:
            for attempt in range(STARTS_MAX):
                try:
                    self._process = RelayProcess(arguments, self._log, ready="Stop with")
                    return
                except AssertionError:  # it ended, and its log says why
                    if attempt == STARTS_MAX - 1:
                        raise

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it; one that another thread is starting, after that."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.end(how)


class ClusterProcesses:
    """All of them. `address` is that of the cluster, `urls` are those of the nodes."""

    def __init__(self, directory: Path, servers: int, nodes: int) -> None:
        self.servers = [NatsServer(directory / f"n{at}", name=f"n{at}") for at in range(servers)]
        if servers > 1:
            for server in self.servers:
                server.join(tuple(one.route_port for one in self.servers))
        hosts = ",".join(one.url.removeprefix("nats://") for one in self.servers)
        self.address = f"nats://{hosts}/{NAME}"
        self.nodes = [NodeProcess(directory, f"r{at}", self.address) for at in range(nodes)]

    @property
    def server_urls(self) -> list[str]:
        return [one.url for one in self.servers]

    @property
    def urls(self) -> str:
        return ",".join(one.url for one in self.nodes)

    async def start(self, layout: Layout) -> None:
        for server in self.servers:
            await asyncio.to_thread(server.start)
        await self._create(layout)
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes))

    async def _create(self, layout: Layout) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await create_cluster(self.server_urls, NAME, layout)
                    break
                except Exception:  # the servers have not found each other yet
                    await asyncio.sleep(0.2)
        client = await connect(self.server_urls)
        values = await SharedValues.open(client.jetstream(), NAME)
        await values.put(CONFIG_KEY, json.dumps(UNLIMITED).encode())
        await values.close()
        await disconnect(client)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill(signal.SIGTERM)
        for server in self.servers:
            server.kill()


@asynccontextmanager
async def running_cluster(
    directory: Path, *, servers: int = 3, nodes: int = 3, partitions: int = 4
) -> AsyncIterator[ClusterProcesses]:
    """Run a cluster until the block ends."""
    cluster = ClusterProcesses(directory, servers, nodes)
    try:
        await cluster.start(Layout(partitions, min(3, servers)))
        yield cluster
    finally:
        await asyncio.to_thread(cluster.stop)
