"""What runs under an agent: the connection task, and where each happening goes.

Rule 1  What happens is handled at once and never waits: reading goes on.
Rule 2  Reading stops only when the application leaves too many messages unread, and not even
        then while somebody waits for an answer that is still to be read.
Rule 3  When it ends, for whatever reason, everything that waits is told why.
"""

import asyncio
import os
import random
from collections.abc import Callable
from typing import assert_never

from waypost.client.address import Address
from waypost.client.confirmations import Confirmations
from waypost.client.errors import AgentClosed, CannotConnect, ClientError
from waypost.client.identity import Identity
from waypost.client.message import Message
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied, SessionEvent
from waypost.client.protocol.session import Session
from waypost.client.receive_queue import Unread
from waypost.client.requests import Requests
from waypost.client.sending import Sending
from waypost.client.signals import SignalHandlers
from waypost.client.websocket import Link, log
from waypost.wire import frames


class Conversation:
    """`give` makes of what came what the application gets."""

    def __init__(
        self,
        address: Address,
        identity: Identity,
        options: ClientOptions,
        give: Callable[[frames.Message], Message],
    ) -> None:
        self._options = options
        self._give = give
        self.session = Session(
            lambda nonce: identity.prove(nonce, address.origin, receive=options.receive),
            options,
            entropy=os.urandom,
            chance=random.random,
        )
        self._link = Link(address, self.session, options, self._handle, self._room)
        self.sending = Sending(identity, self.session, options, self.wake)
        self.requests = Requests(identity.subject, self.session, self.sending, options.guard)
        self.unread = Unread(options)
        self.confirmations = Confirmations()
        self.signals = SignalHandlers()
        self.pending: int | None = None
        self.is_live = False
        self._running: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._problem: Exception | None = None

    async def open(self) -> None:
        """Connect. Raises `CannotConnect`."""
        self._running = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                await self._started.wait()
        except TimeoutError:
            raise CannotConnect(
                f"not connected within {self._options.connect_timeout_s:g} s: {self._link.problem}"
            ) from None
        if self._problem is not None:
            raise self._problem

    async def close(self) -> None:
        """Write what was said, then leave; again does no harm."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await self._link.drained()
        except TimeoutError:
            log.warning("closed before everything was written")
        finally:
            running.cancel()
            await asyncio.wait([running])
            self._end(AgentClosed("the agent is closed"))

    def wake(self) -> None:
        """There is something to write, and perhaps an answer to be read."""
        self._link.wake()
        self.unread.changed.set()

    async def _run(self) -> None:
        try:
            await self._link.run()
        except ClientError as problem:
            log.error("no connection any more: %s", problem)
            self._end(problem)
        except Exception as problem:
            log.exception("the connection failed for a reason nobody thought of")
            self._end(problem)

    def _end(self, problem: Exception) -> None:
        if self._problem is not None:
            return
        self._problem = problem
        self.is_live = False
        self.sending.end(problem)
        self.requests.end(problem)
        self.confirmations.end(problem)
        self.signals.cancel()
        self.unread.close(None if isinstance(problem, AgentClosed) else problem)
        self._started.set()

    async def _room(self) -> None:
        while self.unread.is_full and not self._is_awaited:
            self.unread.changed.clear()
            await self.unread.changed.wait()

    @property
    def _is_awaited(self) -> bool:
        return self.session.awaits_answers or self.confirmations.is_awaited

    def _handle(self, happened: list[SessionEvent], frame_bytes: int) -> None:
        size = frame_bytes // len(happened)
        for happening in happened:
            match happening:
                case frames.Message():
                    self.unread.put(self._give(happening), size)
                case Answered() | OperationFailed() | Fetched():
                    self.sending.answered(happening)
                case Replied():
                    self.requests.replied(happening)
                case frames.DeliveryConfirm():
                    self.confirmations.came(happening)
                case frames.Signalled():
                    self.signals.call(happening)
                case frames.QueueStatus(pending=pending):
                    self.pending = pending
                case frames.Live():
                    self.is_live = True
                case frames.Welcome():
                    self.is_live = False
                    self._started.set()
                case frames.QueueFull():
                    log.info("not stored for %s: %s", happening.recipient, happening.reason)
                case frames.Error():
                    log.warning("the relay says: %s", happening.error)
                case _:
                    assert_never(happening)
