"""The client for asyncio.

    async with connect("http://127.0.0.1:8420", Identity.load("web.key")) as agent:
        await agent.send("agent.billing", {"refund": 12})
        async for message in agent:
            await message.ack()

A thin shell: `protocol.session` decides, `websocket` reads and writes. Everything here runs on the
event loop on which the agent was opened.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from waypost.client.connection import RelayConnection
from waypost.client.errors import AgentClosed, ReceiveTimedOut, WrongReceiveMode
from waypost.client.guard import MessagingGuard
from waypost.client.identity import Identity
from waypost.client.lease_keeper import HeldMessages
from waypost.client.message import Message, Outgoing, open_payload
from waypost.client.options import ClientOptions, chosen_options
from waypost.client.route import Route
from waypost.client.seal_memory import SealMemory
from waypost.client.signals import SignalHandler, Stop
from waypost.client.websocket import now_ms
from waypost.policy.bounds import lease_max_messages, scheduled_max_messages, wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidInput
from waypost.policy.schedules import Delay
from waypost.wire import frames
from waypost.wire.cards import AgentCard
from waypost.wire.envelopes import Envelope
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.sealing import Card

log = logging.getLogger("waypost.client")

SYNC_BATCH = 50


@asynccontextmanager
async def connect(
    url: str, identity: Identity, *, shared: bool = False, options: ClientOptions | None = None
) -> AsyncIterator["Agent"]:
    """Connect to the relay at `url` as `identity`, and stay connected until the block ends.

    `url` is http(s)://HOST:PORT or ws(s)://HOST:PORT, or those of several nodes of one relay,
    separated by commas. With `shared`, other connections of the same
    identity may share its mailbox, if all of them are `shared`: each message goes to one of them.
    Raises `CannotConnect` or one of its subclasses `NotAuthenticated`, `SubjectTaken`,
    `AlreadyConnected`.
    """
    agent = Agent(Route.parse(url), identity, chosen_options(options, shared=shared))
    try:
        await agent.open()
        yield agent
    except Exception as problem:
        agent.held.log_end(problem)
        raise
    finally:
        await agent.close()


class Agent:
    """A connected agent. Created by `connect`.

    `async for message in agent` yields messages as they arrive, at least once: an unacked message
    is delivered again after a reconnect. Lost connections are reopened in the background;
    operations made meanwhile are kept, written again, and stored once. If the relay rejects the
    reconnect for good, every waiting call raises the `CannotConnect` with the cause.
    """

    def __init__(self, route: Route, identity: Identity, options: ClientOptions) -> None:
        self.identity = identity
        self._options = options
        self._seals = SealMemory(
            Path(options.seal_memory) if options.seal_memory else identity.file
        )
        self._connection = RelayConnection(route, identity, options, self._seals, self._to_message)
        connection = self._connection
        self.held = HeldMessages(
            self.subject, connection.session, connection.leases, self._seals, connection.wake
        )

    async def open(self) -> None:
        """Connect; `connect` does this for you. Raises `CannotConnect`."""
        await self._connection.open()

    async def close(self) -> None:
        """Write queued operations, then disconnect. Unacked messages are delivered again to the
        next connection under this subject."""
        await self._connection.close()

    @property
    def subject(self) -> str:
        """Return the subject of this agent."""
        return self.identity.subject

    @property
    def is_connected(self) -> bool:
        """Return whether the agent is connected now."""
        return self._connection.session.is_ready

    @property
    def is_live(self) -> bool:
        """Return whether all stored messages are delivered and acked on this connection."""
        return self._connection.is_live

    @property
    def queue_status(self) -> int | None:
        """Return how many messages were stored when the agent last connected; None if unknown."""
        return self._connection.stored_count

    @property
    def guard(self) -> MessagingGuard:
        """Return the guard of this agent's requests: its limits, state, counters and resets."""
        return self._connection.requests.guard

    # Sending

    async def send(  # noqa: PLR0913 - each is part of one message
        self,
        subject: str,
        payload: object,
        *,
        parent: Message | Envelope | None = None,
        reply_to: str | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        message_id: str | None = None,
        thread: str | None = None,
        seal_to: Card | None = None,
        reply_within: float = 0.0,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> PublishResult:
        """Send a message and wait for the relay's decision. A stored message is on its disk.

        With a `parent` it belongs to that message's thread; without, it begins one, with the id
        `thread` if given. With `reply_within`, this agent waits that many seconds for a reply: if
        the recipient fails before, that is in `failures`. With a `delay` in seconds from its
        acceptance, or at the instant `deliver_at`, it is delivered later. Rejections are in the
        result. Raises `InvalidInput`, `AccessDenied`, `OperationRejected`, and `SendTimedOut` (it
        may be stored: send it again with the same `message_id`).
        """
        message = Outgoing(
            subject=subject,
            payload=payload,
            parent=_envelope(parent),
            reply_to=reply_to,
            budget=budget,
            message_id=message_id,
            thread=thread,
            seal_to=seal_to,
            reply_within=reply_within,
            delay=delay,
            deliver_at=deliver_at,
        )
        return await self._connection.operations.send(message)

    async def scheduled(self, limit: int = scheduled_max_messages) -> list[ScheduledMessage]:
        """Return the messages of this agent that are not due yet, up to `limit`: those due first.

        Raises `TimeoutError` if the relay does not answer.
        """
        return await self._connection.operations.scheduled(limit)

    async def cancel(self, ids: str | Iterable[str]) -> list[str]:
        """Cancel messages of this agent that are not due yet; return their ids.

        Raises `TimeoutError` if the relay does not answer: see `scheduled` then.
        """
        wanted = [ids] if isinstance(ids, str) else list(ids)
        return await self._connection.operations.cancel(wanted)

    async def send_many(
        self, messages: Iterable[Outgoing | Mapping[str, Any]]
    ) -> list[PublishResult]:
        """Send many messages in order, in as few frames as possible, with one timeout.

        Each is a mapping of the parameters of `send`. An invalid one fails them all before
        anything is sent; one that access rules forbid is rejected with `access_denied`.
        """
        return await self._connection.operations.send_many(Outgoing.of(one) for one in messages)

    async def request(  # noqa: PLR0913 - each is part of one message
        self,
        subject: str,
        payload: object,
        *,
        timeout: float = 5.0,
        parent: Message | Envelope | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        thread: str | None = None,
        seal_to: Card | None = None,
    ) -> Message:
        """Send a request and wait up to `timeout` seconds for the reply, which needs no ack.

        Raises `RequestBlocked` if the guard blocks it, `RequestRejected` if no endpoint received
        it, `RequestFailed` if its recipient failed, `RequestTimedOut` without a reply, and the
        errors of `send`.
        """
        self._require_mode("push", "request() needs pushed replies")
        message = Outgoing(
            subject=subject,
            payload=payload,
            parent=_envelope(parent),
            budget=budget,
            thread=thread,
            seal_to=seal_to,
        )
        reply = self._to_message(await self._connection.requests.request(message, timeout))
        reply.ack_nowait()  # the session has acked it already
        return reply

    async def delivered(self, message_id: str, timeout: float = 30.0) -> frames.DeliveryConfirm:
        """Wait until a recipient has confirmed `message_id`. Raises `DeliveryTimedOut`."""
        self._connection.wake()  # reading may have paused
        return await self._connection.confirmations.wait_for(message_id, timeout)

    def confirmations(self) -> AsyncIterator[frames.DeliveryConfirm]:
        """Iterate over confirmations from now on, each once; a slow reader loses the oldest."""
        return self._connection.confirmations.listen()

    def full_queues(self) -> AsyncIterator[frames.QueueFull]:
        """Iterate over full recipients of this agent's messages from now on.

        There is one value for each of them. A slow reader loses the oldest.
        """
        return self._connection.full_queues.listen()

    def failures(self) -> AsyncIterator[frames.RequestFailure]:
        """Iterate over messages sent with `reply_within` whose recipients fail from now on.

        A slow reader loses the oldest.
        """
        return self._connection.requests.failures.listen()

    async def set_card(self, card: AgentCard) -> None:
        """Replace what this agent says about itself, also for reconnects. `AgentCard()` removes it.

        Raises `OperationRejected`, and `TimeoutError` if the relay does not answer: call it again.
        """
        await self._connection.set_card(card)

    def signal(self, subject: str, signal: Signal) -> bool:
        """Signal the agents connected now under a subject or pattern. Return False if this agent
        is not connected."""
        self._connection.operations.check_open()
        queued = self._connection.session.signal(subject, signal)
        self._connection.wake()
        return queued

    def on_signal(self, handler: SignalHandler) -> Stop:
        """Call `handler(sender, signal)`, sync or async, for every signal to this agent.

        Return the function that removes the handler.
        """
        return self._connection.signals.add(handler)

    # Receiving

    def __aiter__(self) -> AsyncIterator[Message]:
        self._require_mode("push", "iterating needs pushed messages; use sync() or fetch()")
        return self._each()

    async def receive(self, timeout: float | None = None) -> Message:
        """Return the next message. Raises `ReceiveTimedOut` after `timeout` seconds, if given,
        and `AgentClosed`."""
        [message] = await self.receive_many(1, timeout)
        return message

    async def receive_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Return up to `limit` messages, waiting for the first as `receive` does."""
        self._require_mode("push", "receive() needs pushed messages; use sync() or fetch()")
        try:
            async with asyncio.timeout(timeout):
                messages = await self._connection.receive_queue.take(limit)
        except TimeoutError:
            raise ReceiveTimedOut(f"no message arrived within {timeout:g} s") from None
        if not messages:
            raise AgentClosed("the agent is closed")
        self.held.newest_id = messages[-1].id
        return messages

    async def consume(self, handler: Callable[[Message], object]) -> None:
        """Call `handler(message)`, sync or async, for each message until the agent is closed.

        The message is acked if the handler returns; if it raises, that is logged and the message
        nacked with the error.
        """
        async for message in self:
            with suppress(Exception):  # the message's block has logged it
                async with message:
                    result = handler(message)
                    if inspect.isawaitable(result):
                        await result

    async def fetch(
        self,
        limit: int = SYNC_BATCH,
        *,
        max_size_bytes: int | None = None,
        wait: float = 0.0,
        answers: bool = False,
    ) -> list[Message]:
        """Return up to `limit` stored messages, none larger than `max_size_bytes`.

        Waits up to `wait` seconds for the first. For agents that pull. With `shared`, it returns no
        more than a share of them; `answers` are those to messages of this connection only.
        """
        return (await self._fetch(limit, max_size_bytes, wait, answers=answers))[0]

    async def sync(self, *, small_max_bytes: int = 8192) -> AsyncIterator[Message]:
        """Iterate over all stored messages: those up to `small_max_bytes` first, then the rest.

        For agents that pull. Small messages need not wait behind large ones.
        """
        for max_size_bytes in (small_max_bytes, None):
            total = 1
            while total:
                messages, total = await self._fetch(SYNC_BATCH, max_size_bytes, 0.0)
                try:
                    while messages:
                        yield messages.pop(0)
                finally:
                    for message in messages:  # the caller stopped iterating: return the rest
                        message.nack_nowait(release=True)

    def block(self, pattern: str) -> None:
        """Block senders under `pattern`: their messages are acked and dropped."""
        self._connection.session.block_list.add(pattern)

    def unblock(self, pattern: str) -> None:
        """Unblock `pattern`."""
        self._connection.session.block_list.remove(pattern)

    @property
    def blocked_count(self) -> int:
        """Return how many messages and signals the block list has dropped."""
        return self._connection.session.block_list.count

    def trust(self, card: Card) -> None:
        """Accept payloads of `card.subject` only if sealed with the key on this card.

        An unsealed message of that sender, too, has a `problem` and no payload. The key replaces
        the one that was known of it. Raises `InvalidMessage` for a key that is invalid or insecure.
        """
        self._seals.trust(card.subject, card.public_key)

    async def _each(self) -> AsyncIterator[Message]:
        while messages := await self._connection.receive_queue.take(1):
            self.held.newest_id = messages[0].id
            yield messages.pop()

    async def _fetch(
        self, limit: int, max_size_bytes: int | None, wait: float, *, answers: bool = False
    ) -> tuple[list[Message], int]:
        self._require_mode("pull", "fetching needs receive='pull'; iterate over the agent instead")
        if not 1 <= limit <= lease_max_messages or not 0 <= wait <= wait_max_s:
            raise InvalidInput(f"fetch 1 to {lease_max_messages:,} messages, wait 0 s or more")
        request = frames.Fetch(
            ref=0,
            limit=limit,
            max_size_bytes=max_size_bytes,
            wait=wait,
            tiers=True,
            release=self._options.release_unacked,
            answers=answers,
        )
        fetched = await self._connection.operations.fetch(request)
        return [self._to_message(one) for one in fetched.messages], fetched.total

    def _to_message(self, delivered: frames.Message) -> Message:
        opened = open_payload(
            delivered,
            self.identity,
            self._seals,
            clock=now_ms,
            max_age_s=self._options.sealed_max_age_s,
        )
        return Message(self, delivered, opened)

    def _require_mode(self, mode: str, hint: str) -> None:
        if self._options.receive != mode:
            raise WrongReceiveMode(f"connected with receive={self._options.receive!r}: {hint}")


def _envelope(parent: Message | Envelope | None) -> Envelope | None:
    return parent.envelope if isinstance(parent, Message) else parent
