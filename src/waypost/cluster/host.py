"""One partition at one node, served to agents while this node owns it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from starlette.types import ASGIApp

from waypost.cluster.carrier import NatsCarrier
from waypost.cluster.lease import Lease
from waypost.cluster.live_agents import LiveAgents
from waypost.cluster.measured_log import MeasuredLog
from waypost.cluster.owners import Owner, announced
from waypost.cluster.partition import PartitionRunner
from waypost.cluster.shared_files import SharedFiles
from waypost.cluster.shared_values import SharedValues
from waypost.policy.settings import Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.relay import Ownership, Partition, Relay
from waypost.server.context import Membership, ServeOptions, ServerContext
from waypost.server.identity.authenticator import Identities
from waypost.server.server import make_app, open_context, with_connections
from waypost.wire.frames import CLOSE_MOVED

MOVED_TEXT = "another node serves this agent now; connect again"
LEAVE_S = 1.0
"""The time that agents have to leave before the relay is closed."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, one of `count`, with its directory at this node, which is `owner` if it owns."""

    number: int
    count: int
    directory: Path
    owner: Owner


class HostNode(Protocol):
    """What all partitions of a node share."""

    identities: Identities
    values: SharedValues
    serve_options: ServeOptions
    settings: Settings
    sessions_max: int
    is_local: bool

    def wants(self, partition: int) -> bool: ...


class Links(NamedTuple):
    """How a partition reaches the others: their mailboxes, and their connected agents."""

    carrier: NatsCarrier
    agents: LiveAgents


class PartitionHost:
    """A partition at this node. `context` and `app` are set while this node owns it."""

    def __init__(
        self,
        place: Place,
        shared: MeasuredLog,
        lease: Lease,
        node: HostNode,
        files: SharedFiles,
        links: Links,
    ) -> None:
        self.number = place.number
        self.take_overs = 0
        self.context: ServerContext | None = None
        self.app: ASGIApp | None = None
        self._place = place
        self._log = shared
        self._node = node
        self._files = files
        self._carrier, self._agents = links
        self._runner = PartitionRunner(
            place.directory,
            shared,
            lease,
            self._open_relay,
            wants=lambda: node.wants(place.number),
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def is_owner(self) -> bool:
        """Whether this node serves the partition."""
        return self.context is not None

    @property
    def problem(self) -> str:
        """Why this node neither owns the partition nor could take it over; "" otherwise."""
        return self._runner.problem

    @property
    def position(self) -> int:
        """The position in the log up to which this node has a copy."""
        return self._log.position

    def start(self) -> None:
        """Begin to follow."""
        owner = self._place.owner
        self._task = asyncio.create_task(self._runner.run(owner.node, owner.address))

    async def stop(self) -> None:
        """Stop serving and following; another node may take over at once."""
        self._runner.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def step_down(self) -> None:
        """Give up the partition, for another node to take over."""
        self._runner.step_down()

    @asynccontextmanager
    async def _open_relay(self, ownership: Ownership) -> AsyncIterator[Relay]:
        """Open the relay, and let it be found; close it when the block ends."""
        place, node = self._place, self._node
        data = DataDir(place.directory)
        self._files.copy_to(data)
        partition = Partition(place.number, place.count, self._carrier)
        membership = Membership(ownership, partition, node.identities)
        async with (
            open_context(
                data.root, node.serve_options, settings=node.settings, membership=membership
            ) as context,
            self._files.shared_from(data),
            self._carrier.serving(place.number, context.relay),
            self._agents.serving(context),
        ):
            context.hub.sessions_max = node.sessions_max
            context.directory.is_local = node.is_local
            owner = msgspec.structs.replace(place.owner, epoch=ownership.epoch)
            async with announced(node.values, place.number, owner):
                self.app = with_connections(make_app(context), context)
                self.context = context
                self.take_overs += 1
                try:
                    yield context.relay
                finally:
                    self.context = self.app = None
                    await _send_away(context)


async def _send_away(context: ServerContext) -> None:
    """Disconnect agents and viewers, and give them a moment to leave."""
    context.sampler.disconnect_all()
    for session in context.hub.connected():
        session.disconnect(MOVED_TEXT, CLOSE_MOVED)
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await context.hub.wait_until_empty()
