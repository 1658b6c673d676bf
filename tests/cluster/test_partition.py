"""Partitions on a real NATS server: taking over, a network cut, and a stream that is gone."""

import asyncio
import gc
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest

from tests.client.tcp_proxy import TcpProxy
from tests.cluster.nodes import SETTINGS, segments_of
from tests.eventually import event_loop_turns, eventually
from tests.harness.nats_server import NatsServer
from waypost import Relay
from waypost.cluster.lease import open_lease
from waypost.cluster.partition import PartitionRunner
from waypost.cluster.streams import connect, create_stream, disconnect, open_log, stream_name
from waypost.relay.errors import RelayStopped
from waypost.relay.journal.replicated import Ownership

pytestmark = [
    pytest.mark.process,
    # nats-py leaves the socket of a connection that it lost to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
LEASE_S = 1.0
NUMBERS = itertools.count()


class TestNode:
    """A partition with its own connection, through a proxy that can be cut."""

    __test__ = False

    def __init__(self, name: str, root: Path, server: NatsServer) -> None:
        self.name = name
        self.directory = root / name
        listener = socket.create_server(("127.0.0.1", 0))
        self._proxy = TcpProxy(server, listener)
        self._url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        self._task: asyncio.Task[None] | None = None
        self.failures: list[Exception] = []
        """Errors of the next attempts to open its relay."""

    async def start(self, cluster: str, timeout_s: float = 2.0, lease_s: float = LEASE_S) -> None:
        await self._proxy.open()
        self._client = await connect([self._url])
        self.log = await open_log(self._client, cluster, 0, replicas=1, timeout_s=timeout_s)
        lease = await open_lease(self._client, cluster, 0, self.name, lease_s=lease_s, replicas=1)
        self.partition = PartitionRunner(
            self.directory,
            self.log,
            lease,
            self._open_relay,
        )
        self._task = asyncio.create_task(self.partition.run(self.name, f"ws://{self.name}"))

    def _open_relay(self, ownership: Ownership) -> Relay:
        if self.failures:
            raise self.failures.pop()
        return Relay(self.directory, settings=SETTINGS, ownership=ownership)

    @property
    def relay(self) -> Relay:
        assert self.partition.relay is not None
        return self.partition.relay

    async def owns(self) -> None:
        await eventually(lambda: self.partition.relay is not None, f"{self.name} to own")

    async def has_followed(self, owner: "TestNode") -> None:
        def is_same() -> bool:
            try:
                mine, others = (segments_of(one.directory / "journal") for one in (self, owner))
            except FileNotFoundError:  # a segment is sealed at this moment
                return False
            return mine == others

        await eventually(is_same, f"{self.name}'s copy")

    async def has_problem(self, text: str) -> None:
        await eventually(lambda: text in self.partition.problem, f"the error {text!r}")

    def cut(self) -> None:
        """Cut the node off from the server."""
        self._proxy.is_closed = True
        self._proxy.cut()

    def heal(self) -> None:
        self._proxy.is_closed = False

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            self.partition.stop()
            await task
            await disconnect(self._client)
            await self._proxy.close()
            gc.collect()


@pytest.fixture
async def cluster(nats_server: NatsServer) -> AsyncIterator[str]:
    name = f"partition-{next(NUMBERS)}"
    client = await connect([nats_server.url])
    await create_stream(client, name, 0, replicas=1)
    yield name
    await disconnect(client)


@pytest.fixture
async def nodes(
    tmp_path: Path, nats_server: NatsServer, cluster: str
) -> AsyncIterator[tuple[TestNode, TestNode]]:
    """Two nodes of which the first one owns the partition, and the second follows."""
    first, second = (TestNode(name, tmp_path, nats_server) for name in ("first", "second"))
    await first.start(cluster)
    await first.owns()
    await second.start(cluster)
    yield first, second
    await first.stop()
    await second.stop()


async def send(relay: Relay, payload: object, **more: str) -> str:
    result = await relay.publish("team.a", payload, sender="team.b", **more)
    return result.message_id


async def test_a_node_that_stops_is_followed_by_another_with_everything(
    nodes: tuple[TestNode, TestNode],
) -> None:
    first, second = nodes
    first.relay.register_endpoint("team.a")
    large = "x" * 100_000  # in pieces
    ids = [await send(first.relay, payload) for payload in ("one", large, "three")]
    await first.relay.lease("team.a", limit=1)
    await first.relay.ack("team.a", ids[0])
    await first.stop()
    await second.owns()
    assert second.partition.epoch == first.partition.epoch + 1
    pending = await second.relay.lease("team.a")
    assert [(one.id, one.payload) for one in pending] == [(ids[1], large), (ids[2], "three")]


async def test_the_segments_of_a_follower_are_those_of_the_owner(
    nodes: tuple[TestNode, TestNode],
) -> None:
    first, second = nodes
    first.relay.register_endpoint("team.a")
    for number in range(30):
        await send(first.relay, number)
    await first.relay.seal_journal()
    await send(first.relay, "after the seal")
    await second.has_followed(first)
    assert len(segments_of(second.directory / "journal")) > 2


async def test_an_owner_cut_off_delivers_and_confirms_nothing_after_a_new_owner(
    nodes: tuple[TestNode, TestNode],
) -> None:
    first, second = nodes
    old = first.relay
    old.register_endpoint("team.a")
    await send(old, "before", message_id="before")
    first.cut()
    publishing = asyncio.ensure_future(send(old, "during", message_id="during"))
    leasing = asyncio.ensure_future(old.lease("team.a"))
    await second.owns()
    assert [one.payload for one in await second.relay.lease("team.a")] == ["before"]
    for waiting in (publishing, leasing):
        with pytest.raises(RelayStopped):
            await waiting
    first.heal()
    await eventually(lambda: not first.partition.problem, "the old owner to follow")
    assert await send(second.relay, "during", message_id="during") == "during"
    assert [one.payload for one in await second.relay.lease("team.a")] == ["during"]


async def test_a_server_that_restarts_delays_a_publish_and_loses_none(
    tmp_path: Path,
) -> None:
    server = NatsServer(tmp_path / "nats")
    server.start()
    client = await connect([server.url])
    await create_stream(client, "restart", 0, replicas=1)
    node = TestNode("only", tmp_path, server)
    await node.start("restart", timeout_s=10.0, lease_s=60.0)  # a busy server takes long
    try:
        await node.owns()
        node.relay.register_endpoint("team.a")
        await send(node.relay, "before")
        server.kill()
        publishing = asyncio.ensure_future(send(node.relay, "during"))
        await event_loop_turns()
        await asyncio.to_thread(server.start)
        await publishing
        assert [one.payload for one in await node.relay.lease("team.a")] == ["before", "during"]
    finally:
        await node.stop()
        await disconnect(client)
        server.kill()


async def test_a_deleted_stream_stops_its_owner_with_a_clear_error(
    nodes: tuple[TestNode, TestNode], nats_server: NatsServer, cluster: str
) -> None:
    first, second = nodes
    first.relay.register_endpoint("team.a")
    await send(first.relay, "before")
    await second.has_followed(first)
    client = await connect([nats_server.url])
    await client.jetstream().delete_stream(stream_name(cluster, 0))
    with pytest.raises(RelayStopped, match="does not exist: it was deleted"):
        await send(first.relay, "after")
    await first.has_problem("does not exist")
    await create_stream(client, cluster, 0, replicas=1)
    for node in nodes:
        await node.has_problem("log is empty, but")
    await disconnect(client)


async def test_a_node_that_is_ahead_of_a_stream_made_again_reports_what_was_lost(
    tmp_path: Path, nats_server: NatsServer, cluster: str
) -> None:
    ahead, fresh = (TestNode(name, tmp_path, nats_server) for name in ("ahead", "fresh"))
    client = await connect([nats_server.url])
    try:
        await ahead.start(cluster)
        await ahead.owns()
        ahead.relay.register_endpoint("team.a")
        await send(ahead.relay, "before")
        ahead.cut()
        await client.jetstream().delete_stream(stream_name(cluster, 0))
        await create_stream(client, cluster, 0, replicas=1)
        await fresh.start(cluster)  # it has no copy that could tell it that there was a log
        await fresh.owns()
        ahead.heal()
        await ahead.has_problem("lost events that it had confirmed")
        await ahead.has_followed(fresh)
    finally:
        await ahead.stop()
        await fresh.stop()
        await disconnect(client)


async def test_a_node_goes_on_after_any_error(
    tmp_path: Path, nats_server: NatsServer, cluster: str
) -> None:
    node = TestNode("only", tmp_path, nats_server)
    node.failures = [
        RuntimeError("a bug"),
        nats.errors.ConnectionReconnectingError(),
        nats.js.errors.NoStreamResponseError(),
    ]
    await node.start(cluster)
    await node.owns()
    assert not node.failures
    assert node.partition.problem == ""
    await node.stop()
