"""The client for asyncio.

    async with connect("http://127.0.0.1:8420", Identity.load("web.key")) as agent:
        await agent.send("agent.billing", {"refund": 12})
        async for message in agent:
            await message.ack()

A thin shell: `session` decides, `link` reads and writes. Everything here runs on the event loop
the agent was opened on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from waypost.client.address import Address, parse_address
from waypost.client.connection import Conversation
from waypost.client.errors import AgentClosed, ReceiveTimedOut, WrongReceiveMode
from waypost.client.identity import Identity
from waypost.client.message import Message, open_payload
from waypost.client.options import ClientOptions
from waypost.client.outgoing import Outgoing, outgoing
from waypost.client.signals import SignalHandler, Stop
from waypost.policy.bounds import lease_max_messages, wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidInput
from waypost.wire import frames
from waypost.wire.envelopes import Envelope
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult
from waypost.wire.sealing import Card

SYNC_BATCH = 50


@asynccontextmanager
async def connect(
    url: str, identity: Identity, *, options: ClientOptions | None = None
) -> AsyncIterator["Agent"]:
    """Connect to the relay at `url` as `identity`, and stay connected until the block ends.

    `url` is http(s)://HOST:PORT or ws(s)://HOST:PORT. Raises `CannotConnect` (or one of its kind:
    `NotAuthenticated`, `SubjectTaken`, `AlreadyConnected`) when that cannot be had.
    """
    agent = Agent(parse_address(url), identity, options or ClientOptions())
    try:
        await agent.open()
        yield agent
    finally:
        await agent.close()


class Agent:
    """One agent, connected. Made by `connect`.

    `async for message in agent` gives messages as they come, at least once: what is not acked
    comes again when the agent connects anew. Lost connections are made again in the background;
    what was sent meanwhile is kept, written again, and stored once. When the relay will not have
    us back, everything that waits raises the `CannotConnect` that says why.
    """

    def __init__(self, address: Address, identity: Identity, options: ClientOptions) -> None:
        self.identity = identity
        self._options = options
        self._talk = Conversation(address, identity, options, self._message)
        self._trusted: dict[str, str] = {}

    async def open(self) -> None:
        """Connect; `connect` does this for you. Raises `CannotConnect`."""
        await self._talk.open()

    async def close(self) -> None:
        """Write what was said, then leave. What was not acked is delivered again, to whoever
        connects under this subject next."""
        await self._talk.close()

    @property
    def subject(self) -> str:
        """Who we are."""
        return self.identity.subject

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._talk.session.is_ready

    @property
    def is_live(self) -> bool:
        """Whether everything stored has been delivered and confirmed on this connection."""
        return self._talk.is_live

    @property
    def queue_status(self) -> int | None:
        """How many messages were stored for us when we connected last; None if never told."""
        return self._talk.pending

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
        seal_to: Card | None = None,
    ) -> PublishResult:
        """Send a message. When this returns, the relay has decided; what it took is on its disk.

        Refusals are in the result. Raises `InvalidInput` for bad input, `AccessDenied`,
        `SendTimedOut` (stored or not: send again with the same `message_id`), `OperationRejected`.
        """
        message = Outgoing(
            subject=subject,
            payload=payload,
            parent=_envelope(parent),
            reply_to=reply_to,
            budget=budget,
            message_id=message_id,
            seal_to=seal_to,
        )
        return await self._talk.sending.send(message)

    async def send_many(
        self, messages: Iterable[Outgoing | Mapping[str, Any]]
    ) -> list[PublishResult]:
        """Send many, in order, in as few frames as they fit; one deadline for all.

        Each is a mapping of the parameters of `send`. One that is invalid fails them all, up
        front; one that access rules forbid is rejected with `access_denied`.
        """
        return await self._talk.sending.send_many(outgoing(one) for one in messages)

    async def request(
        self,
        subject: str,
        payload: object,
        *,
        timeout: float = 5.0,
        parent: Message | Envelope | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        seal_to: Card | None = None,
    ) -> Message:
        """Send, and wait up to `timeout` seconds for the reply, which needs no ack.

        Raises `RequestBlocked` when the guard says no, `RequestRejected` when nobody got it,
        `RequestTimedOut` without a reply, and what `send` raises.
        """
        self._only("push", "request() needs the reply pushed")
        message = Outgoing(
            subject=subject,
            payload=payload,
            parent=_envelope(parent),
            budget=budget,
            seal_to=seal_to,
        )
        reply = self._message(await self._talk.requests.ask(message, timeout))
        reply.ack_nowait()  # the session has confirmed it already
        return reply

    async def delivered(self, message_id: str, timeout: float = 30.0) -> frames.DeliveryConfirm:
        """Wait until a recipient has confirmed `message_id`. Raises `DeliveryTimedOut`."""
        self._talk.wake()  # reading may have stopped
        return await self._talk.confirmations.of(message_id, timeout)

    def confirmations(self) -> AsyncIterator[frames.DeliveryConfirm]:
        """Every confirmation from now on. Each is told once; a slow reader loses the oldest."""
        return self._talk.confirmations.listen()

    def signal(self, subject: str, signal: Signal) -> bool:
        """Tell whoever is connected as `subject` now. False if we are not connected ourselves."""
        self._talk.sending.check_open()
        went = self._talk.session.signal(subject, signal)
        self._talk.wake()
        return went

    def on_signal(self, handler: SignalHandler) -> Stop:
        """Call `handler(sender, signal)`, sync or async, for signals to us; returns its end."""
        return self._talk.signals.add(handler)

    # Receiving

    def __aiter__(self) -> AsyncIterator[Message]:
        self._only("push", "iterating needs messages pushed; use sync() or fetch()")
        return self._each()

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message. Raises `ReceiveTimedOut` after `timeout` seconds, if given, and
        `AgentClosed`."""
        [message] = await self.receive_many(1, timeout)
        return message

    async def receive_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """What is there, up to `limit` messages, waiting for the first as `receive` does."""
        self._only("push", "receive() needs messages pushed; use sync() or fetch()")
        try:
            async with asyncio.timeout(timeout):
                messages = await self._talk.unread.take(limit)
        except TimeoutError:
            raise ReceiveTimedOut(f"nothing arrived within {timeout:g} s") from None
        if not messages:
            raise AgentClosed("the agent is closed")
        return messages

    async def fetch(
        self, limit: int = SYNC_BATCH, *, max_size_bytes: int | None = None, wait: float = 0.0
    ) -> list[Message]:
        """Up to `limit` stored messages, none larger than `max_size_bytes`, waiting up to `wait`
        seconds for the first. For agents that pull."""
        return (await self._fetch(limit, max_size_bytes, wait))[0]

    async def sync(self, *, small_max_bytes: int = 8192) -> AsyncIterator[Message]:
        """All stored messages: first those up to `small_max_bytes`, then the rest. Then it ends.

        For agents that pull. What is small need not wait behind what is large.
        """
        for max_size_bytes in (small_max_bytes, None):
            came = 1
            while came:
                messages, came = await self._fetch(SYNC_BATCH, max_size_bytes, 0.0)
                try:
                    while messages:
                        yield messages.pop(0)
                finally:
                    for message in messages:  # whoever breaks off does not want them
                        message.nack_nowait()

    def block(self, pattern: str) -> None:
        """Hear no more from senders under `pattern`: their messages are confirmed and dropped."""
        self._talk.session.block_list.add(pattern)

    def unblock(self, pattern: str) -> None:
        """Hear from them again."""
        self._talk.session.block_list.remove(pattern)

    @property
    def blocked_count(self) -> int:
        """How many messages and signals the block list has kept away."""
        return self._talk.session.block_list.count

    def trust(self, card: Card) -> None:
        """From now on, what `card.subject` seals must be sealed with the key on this card."""
        self._trusted[card.subject] = card.public_key

    # For the messages this agent has given out

    def confirm(self, message_id: str) -> None:
        """See `Message.ack`."""
        self._talk.session.ack(message_id)
        self._talk.wake()

    def give_back(self, message_id: str, delay: float) -> None:
        """See `Message.nack`."""
        if not 0 <= delay <= wait_max_s:
            raise InvalidInput(f"delay must be 0 to {wait_max_s:,} seconds, not {delay!r:.40}")
        self._talk.session.nack(message_id, delay)
        self._talk.wake()

    def let_go(self, message_id: str) -> None:
        """A message is gone without an answer. Safe in any thread."""
        self._talk.session.let_go(message_id)

    async def _each(self) -> AsyncIterator[Message]:
        while messages := await self._talk.unread.take(1):
            yield messages.pop()

    async def _fetch(
        self, limit: int, max_size_bytes: int | None, wait: float
    ) -> tuple[list[Message], int]:
        self._only("pull", "fetching needs an agent that pulls; iterate over the agent instead")
        if not 1 <= limit <= lease_max_messages or not 0 <= wait <= wait_max_s:
            raise InvalidInput(f"fetch 1 to {lease_max_messages:,} messages, wait 0 s or more")
        fetched = await self._talk.sending.fetch(limit, max_size_bytes, wait)
        return [self._message(one) for one in fetched.messages], fetched.came

    def _message(self, delivered: frames.Message) -> Message:
        trusted = self._trusted.get(delivered.envelope.sender)
        return Message(self, delivered, open_payload(delivered.envelope, self.identity, trusted))

    def _only(self, mode: str, why: str) -> None:
        if self._options.receive != mode:
            raise WrongReceiveMode(f"connected with receive={self._options.receive!r}: {why}")


def _envelope(parent: Message | Envelope | None) -> Envelope | None:
    return parent.envelope if isinstance(parent, Message) else parent
