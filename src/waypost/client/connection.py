"""The connection under an agent: its task, and the routing of session events.

Rule 1  Events are handled without waiting, so that reading continues.
Rule 2  Reading pauses only while the application has too many unread messages, and not even then
        while a caller waits for an answer that is still to be read, unless there are more than an
        honest relay has in flight.
Rule 3  When the connection ends, for whatever reason, every waiting caller gets the cause.
"""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from typing import assert_never

from waypost.client.confirmations import DeliveryConfirmations
from waypost.client.errors import AgentClosed, CannotConnect, ClientError
from waypost.client.feeds import Feed
from waypost.client.identity import Identity
from waypost.client.lease_keeper import LeaseKeeper
from waypost.client.message import Message
from waypost.client.operations import Operations
from waypost.client.options import ClientOptions
from waypost.client.protocol.backoff import BACKOFF_MAX_MS, NODES_BACKOFF_MAX_MS
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied, SessionEvent
from waypost.client.protocol.session import Session
from waypost.client.receive_queue import ReceiveQueue
from waypost.client.requests import GuardedRequests
from waypost.client.route import Route
from waypost.client.seal_memory import SealMemory
from waypost.client.signals import SignalHandlers
from waypost.client.websocket import WebSocketLink
from waypost.wire import frames
from waypost.wire.cards import AgentCard

log = logging.getLogger("waypost.client")


class RelayConnection:
    """One agent's connection. `to_message` turns a delivered frame into the application's value;
    `seals` has the keys of recipients."""

    def __init__(
        self,
        route: Route,
        identity: Identity,
        options: ClientOptions,
        seals: SealMemory,
        to_message: Callable[[frames.Message], Message],
    ) -> None:
        self._options = options
        self._to_message = to_message
        self._card = options.card

        def prove(nonce: str) -> frames.Auth:
            return identity.prove(
                nonce,
                route.current.origin,
                receive=options.receive,
                shared=options.shared,
                prefetch=options.prefetch_max if options.shared else 1,
                card=self._card,
            )

        self.session = Session(
            prove,
            options,
            entropy=os.urandom,
            random=random.random,
            backoff_max_ms=NODES_BACKOFF_MAX_MS if route.given_count > 1 else BACKOFF_MAX_MS,
        )
        self._link = WebSocketLink(route, self.session, options, self._handle, self._wait_for_room)
        self.operations = Operations(identity, self.session, options, seals, self.wake)
        self.requests = GuardedRequests(
            identity.subject, self.session, self.operations, options.guard
        )
        self.leases = LeaseKeeper(self.session, options.extend_max_s, self.wake)
        self.receive_queue = ReceiveQueue(options)
        self.confirmations = DeliveryConfirmations()
        self.full_queues: Feed[frames.QueueFull] = Feed()
        self.signals = SignalHandlers()
        self.stored_count: int | None = None
        self.is_live = False
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._problem: Exception | None = None
        self._error_count = 0

    async def open(self) -> None:
        """Connect. Raises `CannotConnect`."""
        self._task = asyncio.get_running_loop().create_task(self._run())
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
        """Write queued operations, then disconnect. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await self._link.flush()
        except TimeoutError:
            log.warning("close timed out: queued operations were not written")
        finally:
            task.cancel()
            await asyncio.wait([task])
            self._end(AgentClosed("the agent is closed"))

    async def set_card(self, card: AgentCard) -> None:
        """Replace the card of the agent, for this connection and for those that follow it.

        Raises `OperationRejected` or `TimeoutError`.
        """
        await self.operations.set_card(card)
        self._card = card

    def wake(self) -> None:
        """Notify the writer of queued operations, and resume reading for their answers."""
        self._link.wake()
        self.receive_queue.changed.set()

    async def _run(self) -> None:
        try:
            await self._link.run()
        except ClientError as problem:
            log.error("connection lost for good: %s", problem)
            self._end(problem)
        except Exception as problem:
            log.exception("connection failed unexpectedly")
            self._end(problem)

    def _end(self, problem: Exception) -> None:
        if self._problem is not None:
            return
        self._problem = problem
        self.is_live = False
        self.operations.end(problem)
        self.requests.end(problem)
        self.confirmations.end(problem)
        self.full_queues.end()
        self.signals.cancel()
        self.leases.stop()
        self.receive_queue.close(None if isinstance(problem, AgentClosed) else problem)
        self._started.set()

    async def _wait_for_room(self) -> None:
        while self.receive_queue.is_full and not self._reads_on:
            self.receive_queue.changed.clear()
            await self.receive_queue.changed.wait()

    @property
    def _reads_on(self) -> bool:
        """Return whether to read in spite of a full queue, because a caller awaits an answer."""
        if not self.session.awaits_answers and not self.confirmations.is_awaited:
            return False
        welcome = self.session.welcome
        return not self.receive_queue.is_overfull(welcome.unconfirmed_max if welcome else 0)

    def _handle(self, events: list[SessionEvent], memory_bytes: int) -> None:
        size = memory_bytes // len(events)
        for event in events:
            match event:
                case frames.Message():
                    self.receive_queue.put(self._to_message(event), size)
                case frames.DeliveryConfirm():
                    self.confirmations.add(event)
                case (
                    Answered()
                    | OperationFailed()
                    | Fetched()
                    | frames.ScheduledResult()
                    | frames.CancelResult()
                    | frames.CardSet()
                ):
                    self.operations.on_event(event)
                case Replied() | frames.RequestFailure():
                    self.requests.on_event(event)
                case frames.Signalled():
                    self.signals.call(event, size)
                case frames.QueueStatus(pending=pending):
                    self.stored_count = pending
                case frames.Live():
                    self.is_live = True
                case frames.Welcome():
                    self.is_live = False
                    self.leases.connected()
                    self._started.set()
                case frames.QueueFull():
                    self.full_queues.put(event)
                case frames.Error():
                    self._log_error(event)
                case _:
                    assert_never(event)

    def _log_error(self, error: frames.Error) -> None:
        """Log the 1st, 2nd, 4th, 8th … error: no relay fills the log of its agents."""
        if error.reason == frames.MOVED:
            return  # the connection follows
        self._error_count += 1
        if self._error_count.bit_count() == 1:
            count = self._error_count
            log.warning("error from the relay (%d so far): %.255r", count, error.error)
