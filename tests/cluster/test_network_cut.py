"""A network cut that leaves the old owner running: served processes, and agents connected to it.

The old owner is reached as `localhost`, and nodes advertise 127.0.0.1: an agent that was given the
one is not sent to the other. So what these agents get is from the old owner alone.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.client.tcp_proxy import TcpProxy
from tests.cluster.cluster_processes import NAME, NodeProcess
from tests.eventually import eventually
from tests.harness.nats_server import NatsServer
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.client.errors import ClientError
from waypost.client.http import HttpClient
from waypost.cluster.layout import Layout, create_cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]
OPTIONS = ClientOptions(send_timeout_s=60.0, connect_timeout_s=60.0)


class Nodes:
    """An old owner, whose way to the server can be cut, and a node that takes over then."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.proxy = TcpProxy(server, listener)  # type: ignore[arg-type]
        through = f"nats://127.0.0.1:{listener.getsockname()[1]}/{NAME}"
        self.old = NodeProcess(directory, "old", through)
        self.new = NodeProcess(directory, "new", f"{server.url}/{NAME}")

    @property
    def old_url(self) -> str:
        return f"{self.old.url.replace('127.0.0.1', 'localhost')}/p/0"

    @property
    def new_url(self) -> str:
        return f"{self.new.url}/p/0"

    async def owns(self, url: str) -> None:
        await eventually(lambda: is_served(url), f"{url} to be served", timeout_s=60)

    def cut(self) -> None:
        self.proxy.is_closed = True
        self.proxy.cut()

    def heal(self) -> None:
        self.proxy.is_closed = False


async def is_served(url: str) -> bool:
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.get(f"{url}/readyz")).status_code == 200


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Nodes]:
    server = NatsServer(directory / "nats")
    await asyncio.to_thread(server.start)
    await create_cluster([server.url], NAME, Layout(1, 1))
    nodes = Nodes(directory, server)
    await nodes.proxy.open()
    try:
        await asyncio.to_thread(nodes.old.start)
        await nodes.owns(nodes.old_url)
        await asyncio.to_thread(nodes.new.start)
        yield nodes
    finally:
        for node in (nodes.old, nodes.new):
            await asyncio.to_thread(node.kill, signal.SIGTERM)
        await nodes.proxy.close()
        server.kill()


class Receiver:
    """Keeps what an agent gets, until its connection ends for good."""

    def __init__(self, agent: Agent) -> None:
        self.received: list[str] = []
        self._agent = agent

    async def run(self) -> None:
        try:
            async for message in self._agent:
                self.received.append(message.id)
                await message.ack()
        except ClientError:
            pass


class Probes:
    """Requests to the old owner: answers that confirm or hand out anything after the take-over."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self.is_over = False
        self.wrong: list[str] = []
        self.count = 0

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            while not self.is_over:
                self.count += 1
                message = {"subject": "agent.a", "payload": self.count}
                published = await http.post(f"{self._url}/v1/messages", json=message)
                inbox = f"{self._url}/v1/inbox/agent.idle"
                leased = await http.get(inbox, headers=self._headers)
                self.wrong += [one.text for one in (published, leased) if one.status_code == 200]
                await asyncio.sleep(0.05)


async def test_an_owner_cut_off_confirms_and_delivers_nothing_after_a_new_owner(
    tmp_path: Path,
) -> None:
    keys = {name: Identity.new(f"agent.{name}") for name in ("a", "b", "idle")}
    async with running(tmp_path) as nodes, asyncio.TaskGroup() as tasks:
        http = HttpClient(nodes.old_url)
        token = await asyncio.to_thread(http.log_in, keys["idle"])
        http.close()
        async with (
            connect(nodes.old_url, keys["a"], options=OPTIONS) as reader,
            connect(nodes.old_url, keys["b"], options=OPTIONS) as sender,
        ):
            at_old = Receiver(reader)
            receiving = tasks.create_task(at_old.run())
            await sender.send("agent.a", 1, message_id="before")
            await sender.send("agent.idle", 1, message_id="pending")
            await eventually(lambda: at_old.received == ["before"], "the first message")
            nodes.cut()
            during = asyncio.ensure_future(sender.send("agent.a", 2, message_id="during"))
            await nodes.owns(nodes.new_url)
            probes = Probes(nodes.old_url, token.text)
            probing = tasks.create_task(probes.run())
            await _use_new_owner(nodes, keys)
            assert at_old.received == ["before"]
            with pytest.raises((ClientError, TimeoutError)):
                await during
        await eventually(lambda: probes.count > 1, "answers of the old owner")
        probes.is_over = True
        await probing
        receiving.cancel()
        assert probes.wrong == []
        assert at_old.received == ["before"]
        await _old_owner_recovers(nodes, keys)


async def _use_new_owner(nodes: Nodes, keys: dict[str, Identity]) -> None:
    """Send and receive at the new owner what the old one must not see."""
    async with (
        connect(nodes.new_url, keys["a"], options=OPTIONS) as reader,
        connect(nodes.new_url, keys["b"], options=OPTIONS) as sender,
        connect(nodes.new_url, keys["idle"], options=OPTIONS) as idle,
    ):
        await sender.send("agent.a", 3, message_id="after")
        await sender.send("agent.a", 2, message_id="during")
        assert [(await _next(reader)), (await _next(reader))] == ["after", "during"]
        assert await _next(idle) == "pending"


async def _old_owner_recovers(nodes: Nodes, keys: dict[str, Identity]) -> None:
    """Heal the cut, stop the new owner, and find everything at the old one, once."""
    nodes.heal()
    async with httpx.AsyncClient(timeout=60) as http:

        async def follows() -> bool:
            shown = (await http.get(f"{nodes.old.url}/metrics")).text
            return 'waypost_partition_failing{partition="0"} 0.0' in shown

        await eventually(follows, "the old owner to follow", timeout_s=60)
    await asyncio.to_thread(nodes.new.kill, signal.SIGTERM)
    await nodes.owns(nodes.old_url)
    async with (
        connect(nodes.old_url, keys["a"], options=OPTIONS) as reader,
        connect(nodes.old_url, keys["b"], options=OPTIONS) as sender,
    ):
        await sender.send("agent.a", 4, message_id="last")
        assert await _next(reader) == "last"


async def _next(agent: Agent) -> str:
    async with asyncio.timeout(60):
        async for message in agent:
            await message.ack()
            return message.id
    raise AssertionError("the connection ended")
