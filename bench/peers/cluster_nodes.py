"""Nodes of Waypost on NATS servers, with pairs of agents that write to each other.

Each pair is a sender and a recipient with the same first two tokens, so both are in one partition;
with `across`, the recipient is in another one. A node serves with every check on and every limit
out of reach, as the single relay that it is compared with.
"""

import asyncio
import contextlib
import json
import re
import sys
import urllib.request
from collections.abc import AsyncIterator
from itertools import count as count_up
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PeerError, ServerProcess, batch_sizes, require
from bench.peers.nats_servers import NatsServers
from bench.peers.ports import free_ports
from bench.peers.served_relay import open_config
from bench.round_trips import stopwatch
from bench.workload import PAYLOAD_VARIANTS, make_payload
from waypost.policy.partitions import partition_of

if TYPE_CHECKING:
    from waypost.client import Agent

NAME = "bench"
OWNED_SECONDS_MAX = 120.0
NODES, SERVERS = "nodes", "NATS servers"


class Nodes:
    """NATS servers, a cluster on them with `partitions`, and its nodes."""

    def __init__(self, servers: int, nodes: int, partitions: int) -> None:
        self.partitions = partitions
        self._servers_count, self._nodes_count = servers, nodes
        self._servers: NatsServers | None = None
        self._nodes: list[ServerProcess] = []
        self.urls: list[str] = []

    @property
    def servers(self) -> NatsServers:
        """The servers, once started."""
        if self._servers is None:
            raise PeerError("the cluster was not started")
        return self._servers

    async def start(self, data_dir: Path) -> None:
        """Start everything, and wait until every partition has an owner."""
        from waypost.cluster.layout import Layout, create_cluster

        self._servers = NatsServers(data_dir, self._servers_count)
        await self._servers.start()
        await create_cluster(
            self._servers.urls, NAME, Layout(self.partitions, min(3, self._servers_count))
        )
        await self._share_settings()
        hosts = ",".join(one.removeprefix("nats://") for one in self._servers.urls)
        self.urls = [f"http://127.0.0.1:{port}" for port in free_ports(self._nodes_count)]
        for number, url in enumerate(self.urls):
            process = ServerProcess("node", self._servers.directory)
            self._nodes.append(process)
            place = [
                "--port",
                url.rpartition(":")[2],
                "--data-dir",
                str(process.directory / "data"),
            ]
            node = ["--node", f"r{number}", "--advertise", url, "--cluster"]
            serve = [sys.executable, "-m", "waypost", "serve"]
            process.start([*serve, *place, *node, f"nats://{hosts}/{NAME}"])
        await self._wait_for_owners()

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by kind of process."""
        nodes = sum(one.cpu_seconds for one in self._nodes)
        return {NODES: nodes, SERVERS: self.servers.cpu_seconds}

    def node_cpu_seconds(self) -> list[float]:
        """Return the CPU time of each node so far."""
        return [one.cpu_seconds for one in self._nodes]

    def memory_bytes(self) -> dict[str, int]:
        """Return resident memory, by kind of process."""
        nodes = sum(one.memory_bytes for one in self._nodes)
        return {NODES: nodes, SERVERS: self.servers.memory_bytes}

    def appends(self) -> tuple[float, float]:
        """Return the appends of all nodes so far, and the seconds that they took."""
        shown = "".join(_metrics(url) for url in self.urls)
        return _sum(shown, "waypost_append_seconds_count"), _sum(
            shown, "waypost_append_seconds_sum"
        )

    def stop(self) -> None:
        """Kill all processes and remove their files."""
        for one in self._nodes:
            one.stop()
        self._nodes = []
        if self._servers is not None:
            self._servers.stop()

    async def _share_settings(self) -> None:
        from waypost.cluster.owners import move
        from waypost.cluster.shared_files import CONFIG_KEY
        from waypost.cluster.shared_values import SharedValues
        from waypost.cluster.streams import connect, disconnect

        client = await connect(self.servers.urls)
        values = await SharedValues.open(client.jetstream(), NAME)
        try:
            await values.put(CONFIG_KEY, json.dumps(open_config("journal")).encode())
            for number in range(self.partitions if self._nodes_count > 1 else 0):
                await move(values, number, f"r{number % self._nodes_count}")
        finally:
            await values.close()
            await disconnect(client)

    async def _wait_for_owners(self) -> None:
        async with asyncio.timeout(OWNED_SECONDS_MAX):
            while True:
                try:
                    shown = [await asyncio.to_thread(_metrics, url) for url in self.urls]
                except OSError:
                    shown = []
                owned = [_sum(one, "waypost_partition_owned") for one in shown]
                share = self.partitions // len(self.urls)
                if sum(owned) == self.partitions and all(one >= share for one in owned):
                    return
                await asyncio.sleep(0.2)


class ClusterPeer:
    """A `RoundTripPeer` that also publishes to agents that are away, through a cluster."""

    def __init__(
        self, servers: int, nodes: int, *, partitions: int = 0, across: bool = False
    ) -> None:
        partitions = partitions or (2 if across else nodes)
        numbers = f"{nodes} node{'s' * (nodes > 1)}, {servers} server{'s' * (servers > 1)}"
        self.name = f"Waypost, {numbers}" + (", to another partition" if across else "")
        self.cluster = Nodes(servers, nodes, partitions)
        self._pairs_wanted, self._across = nodes, across
        self._payloads = cycle([make_payload(index) for index in range(PAYLOAD_VARIANTS)])
        self._stack = contextlib.AsyncExitStack()
        self._pairs: list[tuple[Agent, str, str]] = []
        self._reading: list[asyncio.Task[None]] = []

    @property
    def directory(self) -> Path:
        """The directory of all processes."""
        return self.cluster.servers.directory

    def available(self) -> str | None:
        """Return what is missing: nothing, the servers are installed with the tests."""
        return None

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of all processes so far."""
        return sum(self.cluster.cpu_seconds().values())

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by kind of process."""
        return self.cluster.cpu_seconds()

    async def start(self, data_dir: Path) -> None:
        """Start the cluster, and connect the agents."""
        try:
            await self.cluster.start(data_dir)
            for number in range(self._pairs_wanted):
                home = team_of(number % self.cluster.partitions, self.cluster.partitions)
                away = team_of((number + 1) % self.cluster.partitions, self.cluster.partitions)
                other = away if self._across else home
                sender = await self._connect(f"{home}.sender-{number}")
                reader = await self._connect(f"{other}.reader-{number}")
                self._reading.append(asyncio.create_task(_read(reader)))
                self._pairs.append((sender, f"{other}.reader-{number}", f"{other}.away-{number}"))
        except BaseException:
            await self.stop()
            raise

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Send; the recipients must acknowledge each message."""
        with stopwatch() as seconds:
            async with self._sharing(count, in_flight) as shares:
                for sender, reader, _, own, at_once in shares:
                    shares.group.create_task(self._round_trips(sender, reader, own, at_once))
        return seconds[0]

    async def publishes(self, count: int, in_flight: int) -> float:
        """Send to agents that are away: each message is stored, and stays."""
        with stopwatch() as seconds:
            async with self._sharing(count, in_flight) as shares:
                for sender, _, away, own, at_once in shares:
                    shares.group.create_task(self._publish(sender, away, own, at_once))
        return seconds[0]

    async def stop(self) -> None:
        """Disconnect everyone, and stop the cluster."""
        for one in self._reading:
            one.cancel()
        await self._stack.aclose()
        self.cluster.stop()

    async def _connect(self, subject: str) -> "Agent":
        from waypost.client import Identity, connect

        agent = connect(self.cluster.urls[0], Identity.new(subject))
        return await self._stack.enter_async_context(agent)

    @contextlib.asynccontextmanager
    async def _sharing(self, count: int, in_flight: int) -> AsyncIterator["Shares"]:
        """Split a run between the pairs; with one message in flight, only one pair sends."""
        pairs = self._pairs[: min(len(self._pairs), in_flight)]
        async with asyncio.TaskGroup() as group:
            shares = Shares(group)
            for number, (sender, reader, away) in enumerate(pairs):
                own = count // len(pairs) + (number < count % len(pairs))
                shares.append((sender, reader, away, own, max(1, in_flight // len(pairs))))
            yield shares

    async def _round_trips(self, sender: "Agent", reader: str, count: int, at_once: int) -> None:
        for size in batch_sizes(count, at_once):
            for message_id in await self._send(sender, reader, size):
                await sender.delivered(message_id)

    async def _publish(self, sender: "Agent", away: str, count: int, at_once: int) -> None:
        for size in batch_sizes(count, at_once):
            await self._send(sender, away, size)

    async def _send(self, sender: "Agent", subject: str, count: int) -> list[str]:
        results = await sender.send_many(
            {"subject": subject, "payload": payload} for payload in islice(self._payloads, count)
        )
        for one in results:
            require(bool(one.delivered_to), f"a message was not delivered: {one.rejected}")
        return [one.message_id for one in results]


class Shares(list[tuple["Agent", str, str, int, int]]):
    """What each pair does in one run: sender, recipients, messages, and how many at once."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self.group = group


def team_of(partition: int, partitions: int) -> str:
    """Return two tokens of a subject that belong to a partition."""
    names = (f"agent.team-{number}" for number in count_up())
    return next(one for one in names if partition_of(one, partitions) == partition)


async def _read(reader: "Agent") -> None:
    while True:
        for message in await reader.receive_many(1000):
            await message.ack()


def _metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def _sum(shown: str, name: str) -> float:
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", shown, re.MULTILINE)
    return sum(map(float, found))
