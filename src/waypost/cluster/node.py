"""A node of a cluster: its connection to the servers, its share of the partitions, one front.

Rule 1  All nodes run the same partitions; which of them a node owns is decided by the logs.
Rule 2  A node wants its share of the partitions, and others only if no other node takes them.
Rule 3  What nodes share is in the bucket of the cluster: its layout, secrets, keys of agents,
        settings, access rules, and the addresses of owners.
"""

import asyncio
import logging
import math
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from starlette.types import ASGIApp

from waypost.cluster.announcements import Announcement, alive_nodes, announce, withdraw
from waypost.cluster.carrier import NatsCarrier
from waypost.cluster.host import Links, PartitionHost, Place
from waypost.cluster.layout import Layout, layout_of
from waypost.cluster.lease import LEASE_S, open_lease
from waypost.cluster.live_agents import LiveAgents
from waypost.cluster.measured_log import MeasuredLog
from waypost.cluster.metrics import AppendTimes
from waypost.cluster.node_file import NodeFile, claim_of, cluster_id, write_node_file
from waypost.cluster.owners import Owner, owner_of, wish_of
from waypost.cluster.shared_bindings import SharedBindings
from waypost.cluster.shared_files import SharedFiles
from waypost.cluster.shared_values import SharedValues
from waypost.cluster.streams import answered, check_sync, connect, disconnect, open_log
from waypost.policy.bounds import connections_max
from waypost.policy.partitions import partition_of
from waypost.policy.settings import Settings
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.errors import LogUnavailable
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.identity.authenticator import Identities
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.tokens import OperatorToken, Tokens

log = logging.getLogger("waypost.cluster")

ANNOUNCE_S = LEASE_S / 3
JOIN_S, JOIN_RETRY_S = 15.0, 0.2
REBALANCE_S = 2 * LEASE_S
"""The time after a node came or went, and again before the next partitions are left to others."""
REBALANCE_PART = 0.25
"""Of the partitions above its share, those that a node leaves to others at once."""
SPARE_CHANCE = 0.1
"""How often a node tries to own more than its share, in case no other node can."""
SECRET_BYTES = 32
PROBLEM_MAX_CHARS = 1000


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A node: its name in the cluster, and the URL at which agents and other nodes reach it."""

    servers: tuple[str, ...]
    cluster: str
    name: str
    address: str
    data_dir: Path
    serve: ServeOptions
    settings: Settings
    is_local: bool = False
    """Whether only this machine can reach the node."""
    monitoring: tuple[str, ...] = ()
    """Monitoring addresses of the servers, to check what clients cannot see."""


class Node:
    """One node. `open_node` creates it."""

    def __init__(
        self,
        options: NodeOptions,
        client: Client,
        layout: Layout,
        values: SharedValues,
        identities: Identities,
        claim: NodeFile,
    ) -> None:
        self.options = options
        self._claim = claim
        self.client = client
        self.is_local = options.is_local
        self.sessions_max = connections_max
        self.connections_max = connections_max
        self.layout = layout
        self.hosts: list[PartitionHost] = []
        self.alive: dict[str, str] = {}
        self.append_times = AppendTimes()
        self.identities = identities
        self.values = values
        self.serve_options, self.settings = options.serve, options.settings
        self.unreachable = ""
        """Why the advertised address does not reach this node; "" if it does."""
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the node cannot go on."""
        self._steady_since = 0.0

    # Placement

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.layout.partitions

    def partition_of(self, subject: str) -> int:
        """Return the partition of a subject."""
        return partition_of(subject, self.layout.partitions)

    def app(self, partition: int) -> ASGIApp | None:
        """Return the application of a partition that this node owns, or None."""
        return self.hosts[partition].app if partition < len(self.hosts) else None

    def address(self, partition: int) -> str:
        """Return the URL of the node that owns a partition; "" if none is known to be alive.

        A node that was killed has not withdrawn, and agents would try to reach it.
        """
        owner = owner_of(self.values, partition)
        return owner.address if owner is not None and owner.node in self.alive else ""

    def wants(self, partition: int) -> bool:
        """Return whether this node should try to own a partition without an owner."""
        wish = wish_of(self.values, partition)
        if wish in self.alive:
            return wish == self.options.name
        owned = sum(host.is_owner for host in self.hosts)
        return owned < self._share or random.random() < SPARE_CHANCE

    # Serving

    @property
    def instance(self) -> str:
        """The id of this node's data directory."""
        return self._claim.instance

    def start(self) -> None:
        """Begin to follow and to own partitions; the data directory is this node's from now on."""
        write_node_file(self.options.data_dir, self._claim)
        for host in self.hosts:
            host.start()

    @property
    def _contexts(self) -> list[ServerContext]:
        return [host.context for host in self.hosts if host.context is not None]

    def limit_sessions(self, sessions_max: int) -> None:
        """Connect at most `sessions_max` agents to each partition."""
        self.sessions_max = sessions_max
        for context in self._contexts:
            context.hub.sessions_max = sessions_max

    def disconnect_all(self) -> None:
        """Disconnect agents and viewers, because the node stops."""
        for context in self._contexts:
            context.sampler.disconnect_all()
            context.hub.disconnect_all("this node is shutting down; reconnect")

    async def wait_until_empty(self) -> None:
        """Wait until all agents have disconnected."""
        await asyncio.gather(*(context.hub.wait_until_empty() for context in self._contexts))

    def fail(self, problem: str) -> None:
        """Stop the node because of a problem that it cannot solve."""
        if not self._failed.done():
            self._failed.set_result(problem)

    async def failure(self) -> str:
        """Wait for what keeps the whole node from serving, and return it.

        A partition that fails here is followed, and owned by another node.
        """
        return await self._failed

    async def stop(self) -> None:
        """Stop all partitions at the same time: one after the other, a node that is about to stop
        would take over what others leave."""
        await asyncio.gather(*(host.stop() for host in self.hosts))

    async def announce(self) -> None:
        """Let the others know that this node is alive, and learn which of them are."""
        options, before = self.options, self.alive.keys()
        content = Announcement(options.address, self.instance, self.problem[:PROBLEM_MAX_CHARS])
        await announce(self.client, options.cluster, options.name, content)
        self.alive = await alive_nodes(self.client, options.cluster)
        if self.alive.keys() != before:
            self._steady_since = asyncio.get_running_loop().time()

    @property
    def problem(self) -> str:
        """What is wrong with this node, in one text; "" if nothing is."""
        failing = [host for host in self.hosts if host.problem]
        texts = [self.unreachable] if self.unreachable else []
        texts += [f"partition {host.number}: {host.problem}" for host in failing[:1]]
        if len(failing) > 1:
            texts.append(f"and {len(failing) - 1} more partitions")
        return "; ".join(texts)

    async def keep_alive(self) -> None:
        """Announce this node, and learn which others are alive, until cancelled."""
        while True:
            try:
                await self.announce()
                self._give_up_moved()
                self._give_up_surplus()
            except Exception as problem:
                log.warning("cluster: this node is not announced: %s", problem)
            if self.client.is_closed:  # as after a password that is not valid any more
                self.fail(
                    "the NATS servers ended the connection of this node: check its user and"
                    " password, and their log; then start it again"
                )
                return
            await asyncio.sleep(ANNOUNCE_S)

    @property
    def _share(self) -> int:
        """How many partitions this node should own."""
        return math.ceil(self.layout.partitions / max(1, len(self.alive)))

    def _give_up_surplus(self) -> None:
        """Leave a part of what is above this node's share to others, now and then."""
        owned = [host for host in self.hosts if host.is_owner]
        surplus = len(owned) - self._share
        now = asyncio.get_running_loop().time()
        if surplus > 0 and now - self._steady_since > REBALANCE_S:
            self._steady_since = now
            for host in owned[-math.ceil(surplus * REBALANCE_PART) :]:
                log.info("partition %d: left to another node", host.number)
                host.step_down()

    def _give_up_moved(self) -> None:
        """Step down from partitions that the operator moved to another node that is alive."""
        for host in self.hosts:
            wish = wish_of(self.values, host.number)
            if host.is_owner and wish in self.alive and wish != self.options.name:
                log.info("partition %d: moves to %s", host.number, wish)
                host.step_down()


@asynccontextmanager
async def open_node(options: NodeOptions) -> AsyncIterator[Node]:
    """Join the cluster until the block ends; with `start`, this node runs its share of partitions.

    Raises `LogUnavailable`, `LogUnusable`, `DataDirUnusable` or `DataDirInUse` if that is not
    possible; nothing is changed then.
    """
    async with AsyncExitStack() as stack:
        with answered():
            node = await _joined(options, stack)
        keep_alive = asyncio.create_task(node.keep_alive())
        stack.callback(keep_alive.cancel)
        stack.push_async_callback(node.stop)
        yield node


async def _joined(options: NodeOptions, stack: AsyncExitStack) -> Node:
    """Return a node that has joined the cluster, and leaves it with `stack`."""
    client = await connect(options.servers)
    stack.push_async_callback(disconnect, client)
    for url in options.monitoring:
        await check_sync(url)
    values = await SharedValues.open(client.jetstream(), options.cluster)
    stack.push_async_callback(values.close)
    layout = layout_of(values, options.cluster)
    lock = DirectoryLock(DataDir(options.data_dir))
    stack.callback(lock.release)
    id_ = await cluster_id(values)
    claim = claim_of(options.data_dir, options.cluster, id_, options.name)
    identities = await _identities(options, values, stack)
    node = Node(options, client, layout, values, identities, claim)
    node.hosts = await _hosts(node)
    await _join(node)
    stack.push_async_callback(withdraw, client, options.cluster, options.name)
    return node


async def _hosts(node: Node) -> list[PartitionHost]:
    """Return the partitions of a node, once each stream is as it must be."""
    options, layout, client = node.options, node.layout, node.client
    files, carrier = SharedFiles(node.values), NatsCarrier(client, options.cluster)
    hosts = []
    for number in range(layout.partitions):
        opened = await open_log(client, options.cluster, number, replicas=layout.replicas)
        shared = MeasuredLog(opened, node.append_times.record)
        lease = await open_lease(
            client, options.cluster, number, options.name, replicas=layout.replicas
        )
        place = Place(
            number=number,
            count=layout.partitions,
            directory=options.data_dir / "partitions" / str(number),
            owner=Owner(options.name, options.address, 0),
        )
        agents = LiveAgents(client, options.cluster, number, layout.partitions)
        hosts.append(PartitionHost(place, shared, lease, node, files, Links(carrier, agents)))
    return hosts


async def _join(node: Node) -> None:
    """Announce a node for the first time: a bucket that was just created has no leader yet."""
    until = asyncio.get_running_loop().time() + JOIN_S
    while True:
        try:
            await node.announce()
            return
        except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as problem:
            if asyncio.get_running_loop().time() > until:
                raise LogUnavailable(
                    f"the leases of {node.options.cluster} did not answer within {JOIN_S:g} s"
                    f" ({problem}): check that a majority of the NATS servers is running"
                ) from None
        await asyncio.sleep(JOIN_RETRY_S)


async def _identities(
    options: NodeOptions, values: SharedValues, stack: AsyncExitStack
) -> Identities:
    """Return the keys and secrets that all nodes share; the first node makes the secrets."""

    def make() -> bytes:
        return secrets.token_urlsafe(SECRET_BYTES).encode()

    token_secret = await values.create_once("secret.tokens", make)
    operator = await values.create_once("secret.operator", make)
    store = await SharedBindings.open(options.servers, options.cluster, values)
    stack.push_async_callback(store.close_connection)
    bindings = Bindings(store)
    store.follow(bindings)
    return Identities(
        bindings, Tokens(token_secret), OperatorToken(operator.decode()), is_shared=True
    )
