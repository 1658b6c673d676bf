"""Connected agents of other partitions: signals to them, and whether they are there.

Both go over NATS as plain messages, never stored: what does not arrive is lost.

Rule 1  A signal is admitted by the partition of its sender, and again by each one that it goes to,
        with the same limits of size and rate. A signal that one of them rejects there is dropped.
Rule 2  Signals that cannot leave at once are dropped: while there is no connection, or if too many
        wait.
Rule 3  Who does not answer in time is not known to be connected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from waypost.policy.bounds import directory_page_max_names
from waypost.policy.errors import WaypostError
from waypost.policy.partitions import partition_of, partitions_of
from waypost.policy.reserved_names import is_reserved
from waypost.policy.subjects import is_subject
from waypost.server.context import ServerContext
from waypost.server.directory import Presence
from waypost.wire.payloads import Signal, validate_signal

log = logging.getLogger("waypost.cluster")

WAITING_SIGNALS_MAX = 1000
PRESENCE_S = 1.0
_PENDING_MAX_BYTES = 4 * 1024 * 1024

Subjects = Annotated[list[str], msgspec.Meta(max_length=directory_page_max_names)]


class CarriedSignal(msgspec.Struct, frozen=True):
    """A signal to a subject or pattern; the relay's own has no `sender`."""

    sender: str
    subject: str
    signal: Signal


class LiveAgents:
    """Reaches the agents of other partitions, for the partition `number` of `count`."""

    def __init__(self, client: Client, cluster: str, number: int, count: int) -> None:
        self._client = client
        self._prefix = f"waypost.{cluster}"
        self._number, self._count = number, count
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(WAITING_SIGNALS_MAX)
        self.dropped = 0
        """Signals that could not leave."""

    @asynccontextmanager
    async def serving(self, context: ServerContext) -> AsyncIterator[None]:
        """Connect the agents of `context` with those of other partitions, until the block ends."""

        async def take_signal(message: Msg) -> None:
            self._receive(context, message.data)

        async def answer(message: Msg) -> None:
            await message.respond(msgspec.json.encode(self._presence_here(context, message.data)))

        async with AsyncExitStack() as stack:
            for name, act in (("signal", take_signal), ("presence", answer)):
                subscription = await self._client.subscribe(
                    f"{self._prefix}.{self._number}.{name}",
                    cb=act,
                    pending_msgs_limit=WAITING_SIGNALS_MAX,
                    pending_bytes_limit=_PENDING_MAX_BYTES,
                )
                stack.push_async_callback(_end, subscription)
            sending = asyncio.create_task(self._send_waiting())
            stack.callback(sending.cancel)
            stack.callback(context.relay.on_signal(">", self._forward_own))
            context.hub.forward_signals(self.forward)
            context.directory.ask_elsewhere(self.presence)
            yield

    def forward(self, sender: str, subject: str, signal: Signal) -> None:
        """Send a signal to the other partitions that have agents of a subject or pattern."""
        others = [one for one in partitions_of(subject, self._count) if one != self._number]
        if not others:
            return
        content = msgspec.json.encode(CarriedSignal(sender, subject, signal))
        for partition in others:
            try:
                if not self._client.is_connected:
                    raise asyncio.QueueFull
                self._waiting.put_nowait((f"{self._prefix}.{partition}.signal", content))
            except asyncio.QueueFull:
                self.dropped += 1

    async def presence(self, subjects: Sequence[str]) -> dict[str, Presence]:
        """Return the presence of agents of other partitions, as far as those answer."""
        wanted: dict[int, list[str]] = {}
        for subject in subjects:
            partition = partition_of(subject, self._count)
            if partition != self._number:
                wanted.setdefault(partition, []).append(subject)
        answers = await asyncio.gather(*(self._ask(*one) for one in wanted.items()))
        return {subject: one for found in answers for subject, one in found.items()}

    async def _ask(self, partition: int, subjects: list[str]) -> dict[str, Presence]:
        try:
            answer = await self._client.request(
                f"{self._prefix}.{partition}.presence",
                msgspec.json.encode(subjects),
                timeout=PRESENCE_S,
            )
            return msgspec.json.decode(answer.data, type=dict[str, Presence])
        except (nats.errors.Error, OSError, TimeoutError, msgspec.DecodeError):
            return {}

    def _presence_here(self, context: ServerContext, data: bytes) -> dict[str, Presence]:
        try:
            subjects = msgspec.json.decode(data, type=Subjects)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return {one: context.directory.presence_of(one) for one in subjects}

    def _forward_own(self, subject: str, signal: Signal) -> None:
        """Forward a notice of this relay about an eviction to a sender of another partition."""
        if signal.state == "evicted" and partition_of(subject, self._count) != self._number:
            self.forward("", subject, signal)

    def _receive(self, context: ServerContext, data: bytes) -> None:
        """Deliver a signal of another partition, unless it is over a limit or malformed."""
        try:
            carried = msgspec.json.decode(data, type=CarriedSignal)
            signal = validate_signal(carried.signal)
            if not carried.sender:
                context.relay.signal(carried.subject, signal)
            elif is_subject(carried.sender) and not is_reserved(carried.sender):
                context.hub.signal(carried.sender, carried.subject, signal, is_carried=True)
        except (WaypostError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            log.debug("cluster: a signal is dropped: %s", problem)

    async def _send_waiting(self) -> None:
        while True:
            subject, content = await self._waiting.get()
            try:
                await self._client.publish(subject, content)
            except (nats.errors.Error, OSError) as problem:
                self.dropped += 1
                log.debug("cluster: a signal did not leave: %s", problem)


async def _end(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except (nats.errors.Error, OSError):
        pass  # the connection is gone, and the subscription with it
