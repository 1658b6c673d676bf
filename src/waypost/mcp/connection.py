"""The connection of one agent to its relay, for the life of the process.

Rule 1  It connects on start and fetches the stored messages. If that fails, each call tries again
        and reports the failure: the relay may start later than the MCP host.
Rule 2  Messages are fetched as they arrive and put into the inbox cache; none is acknowledged here.
Rule 3  Small messages are fetched first and always. Large ones only while few of them are
        unacknowledged: the relay limits the bytes that run ahead of acks, and an expected answer
        must not queue behind them.
Rule 4  With `shared`, other programs of the same agent share its mailbox. Then messages are fetched
        only while a call asks for them, and few at a time: what one holds, the others cannot show.
Rule 5  The leases of fetched messages are kept while the model makes calls. After `IDLE_MAX_S`
        without one, they are released, and nothing is fetched until the next call. A host that
        waits for notices (`is_watched`) gets the next message however long that takes, and has
        `IDLE_MAX_S` from its notice on.
"""

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from waypost.client.aio import Agent
from waypost.client.errors import OperationRejected
from waypost.client.guard import MessagingGuard
from waypost.client.http import tls_context
from waypost.client.identity import Identity
from waypost.client.message import Message
from waypost.client.options import ClientOptions
from waypost.client.route import Route
from waypost.mcp.inbox import InboxCache
from waypost.mcp.relay_api import RelayApi
from waypost.policy.bounds import unconfirmed_max_bytes
from waypost.wire.cards import AgentCard
from waypost.wire.frames import RequestFailure

log = logging.getLogger("waypost.mcp")

SMALL_MAX_BYTES = 65_536
LARGE_TOTAL_MAX_BYTES = unconfirmed_max_bytes // 2
FETCH_LIMIT = 100
FETCH_WAIT_S = 10.0
SHARED_FETCH_LIMIT = 10
PAUSED_WAIT_S = 1.0
"""Fetch wait while large messages are paused; some may be acknowledged meanwhile. Also that of a
shared connection, whose caller may stop waiting meanwhile."""

IDLE_MAX_S = 3600.0
EXTEND_MAX_S = 24 * 3600.0
"""How long the lease of one message is kept at most."""

SYNC_TIMEOUT_S = 5.0
"""How long a call waits for the stored messages."""

T = TypeVar("T")


class McpConnection:
    """One agent at one relay. Use as `async with`; any number of calls may share it.

    `guard` limits its requests; it is stopped with the connection. `is_shared` is whether other
    programs may share the mailbox. `card` is what the agent says about itself.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        operator_token: str | None = None,
        guard: MessagingGuard | None = None,
        shared: bool = False,
        card: AgentCard | None = None,
    ) -> None:
        self.identity = identity
        self.is_shared = shared
        self._card = card
        self.guard = guard or MessagingGuard()
        self.inbox = InboxCache()
        self.api = RelayApi(url, identity, operator_token)
        self.url = self.api.url
        self.waiting_hosts: weakref.WeakSet[object] = weakref.WeakSet()
        """What stands for the hosts that wait for notices of new messages, while they do."""
        self._called = asyncio.Event()
        self._called_s = 0.0
        self._call_count = 0
        self._agent: Agent | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[Agent] | None = None
        self._readers = 0
        self._askers = 0
        self._wanted = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.note_call()
        self._start_connecting()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in (self._connecting, self._fetching, self._noting):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._agent is not None:
            await self._agent.close()
        await self.api.close()
        self.guard.stop()

    @property
    def subject(self) -> str:
        """Return the subject of this agent."""
        return self.identity.subject

    @property
    def is_connected(self) -> bool:
        """Return whether the agent is connected now."""
        return self._is_running and self._agent is not None and self._agent.is_connected

    @property
    def pauses_large(self) -> bool:
        """Return whether large messages stay at the relay until cached ones are acknowledged."""
        large = (one.size for one in self.inbox.all() if one.size > SMALL_MAX_BYTES)
        return sum(large) >= LARGE_TOTAL_MAX_BYTES

    async def agent(self) -> Agent:
        """Return the connected agent; connect if necessary. Raises a `WaypostError` on failure."""
        self.note_call()
        return await self.connected_agent()

    async def connected_agent(self) -> Agent:
        """Return the connected agent as `agent` does, although the model has made no call."""
        if self._is_running and self._agent is not None:
            return self._agent
        if self._connecting is None or self._connecting.done():
            self._start_connecting()
        assert self._connecting is not None
        # One attempt serves all waiting calls, so a cancelled call must not end it.
        return await asyncio.shield(self._connecting)

    async def synced_inbox(self) -> InboxCache:
        """Return the inbox once the stored messages are fetched, or after a timeout.

        Raises as `agent` does.
        """
        await self.agent()
        if not self.is_shared:
            await self.inbox.wait_for(lambda: self.inbox.is_synced or None, SYNC_TIMEOUT_S)
        return self.inbox

    async def current_inbox(self) -> InboxCache:
        """Return the inbox as `synced_inbox` does; a shared one that has no unread message gets
        those that the relay has now."""
        inbox = await self.synced_inbox()
        if self.is_shared and not inbox.unread():
            inbox.is_synced = False
            await self.wait_for(lambda: inbox.is_synced or None, SYNC_TIMEOUT_S)
        return inbox

    async def wait_for(
        self, find: Callable[[], T | None], wait_s: float, *, answers: bool = False
    ) -> T | None:
        """Return the result of `find` as `InboxCache.wait_for` does; fetch messages meanwhile.

        `answers` is whether only answers to this agent's own messages are needed.
        """
        self._askers += answers
        self._readers += not answers
        self._wanted.set()
        try:
            return await self.inbox.wait_for(find, wait_s)
        finally:
            self._askers -= answers
            self._readers -= not answers
            if not self._askers and not self._readers:
                self._wanted.clear()

    @property
    def is_watched(self) -> bool:
        """Return whether a host waits for notices of new messages."""
        return bool(self.waiting_hosts)

    @property
    def is_idle(self) -> bool:
        """Return whether the model has made no call for long."""
        return asyncio.get_running_loop().time() - self._called_s > IDLE_MAX_S

    async def wait_for_call(self, wait_s: float) -> None:
        """Return at the next call of the model, or after `wait_s` seconds."""
        before = self._call_count
        await self.inbox.wait_for(lambda: self._call_count != before or None, wait_s)

    def note_call(self) -> None:
        """Note a call of the model, or that a host begins to wait for notices."""
        self._called_s = asyncio.get_running_loop().time()
        self._call_count += 1
        self._called.set()
        self.inbox.wake()

    async def _wait_for_call(self) -> None:
        """If the model has made no call for long, release its messages and wait for the next."""
        may_be_notified = self.is_watched and not len(self.inbox)
        if self.is_idle and not may_be_notified:
            self.inbox.release()
            self._called.clear()
            await self._called.wait()

    @property
    def _is_running(self) -> bool:
        return self._fetching is not None and not self._fetching.done()

    def _start_connecting(self) -> None:
        self._connecting = asyncio.create_task(self._connect())
        self._connecting.add_done_callback(_log_failure)

    async def _connect(self) -> Agent:
        # Request a token first: over HTTP, a rejection comes at once and with its full text.
        await self.api.log_in()
        previous, self._agent = self._agent, None
        if previous is not None:
            await previous.close()
        options = ClientOptions(
            receive="pull",
            shared=self.is_shared,
            release_unacked=True,  # a model may end without reading them
            send_timeout_s=20.0,
            extend_max_s=EXTEND_MAX_S,
            card=self._card,
            tls=tls_context(self.url),
        )
        agent = Agent(Route.parse(self.url), self.identity, options)
        try:
            await agent.open()
        except BaseException:
            await agent.close()
            raise
        self.inbox.reset()
        self._agent = agent
        self._fetching = asyncio.create_task(self._fetch(agent))
        self._fetching.add_done_callback(_log_failure)
        self._noting = asyncio.create_task(self._note_failures(agent.failures()))
        return agent

    async def _note_failures(self, failures: AsyncIterator[RequestFailure]) -> None:
        """Note failed requests until the agent is closed."""
        async for one in failures:
            self.inbox.add_failure(one.message_id, one.error)

    async def _fetch(self, agent: Agent) -> None:
        """Fetch messages until the agent fails for good; raise its error."""
        while True:
            try:
                await self._wait_for_call()
                if self.is_shared:
                    await self._fetch_wanted(agent)
                    continue
                await self._fetch_stored(agent)
                self.inbox.mark_synced()
                if not await self.inbox.wait_for(self._has_room, FETCH_WAIT_S):
                    continue
                paused = self.pauses_large
                largest = SMALL_MAX_BYTES if paused else None
                wait_s = PAUSED_WAIT_S if paused else FETCH_WAIT_S
                self._add(await agent.fetch(FETCH_LIMIT, max_size_bytes=largest, wait=wait_s))
            except TimeoutError:
                continue  # the relay is unreachable; the agent reconnects in the background
            except OperationRejected as problem:
                log.warning("fetch rejected: %s", problem)
                await asyncio.sleep(PAUSED_WAIT_S)

    async def _fetch_wanted(self, agent: Agent) -> None:
        """Fetch a few messages once a call waits for some, or only answers if it needs no more."""
        await self._wanted.wait()
        if not await self.inbox.wait_for(self._has_room, FETCH_WAIT_S):
            return
        wait_s = PAUSED_WAIT_S if self.inbox.is_synced else 0.0
        answers = not self._readers
        self.inbox.add(await agent.fetch(SHARED_FETCH_LIMIT, wait=wait_s, answers=answers))
        self.inbox.mark_synced()

    def _add(self, messages: list[Message]) -> None:
        """Add messages; an idle model, which is about to be notified, has time again."""
        if messages and self.is_idle:
            self._called_s = asyncio.get_running_loop().time()
        self.inbox.add(messages)

    def _has_room(self) -> bool | None:
        return None if self.inbox.is_full else True

    async def _fetch_stored(self, agent: Agent) -> None:
        for largest in (SMALL_MAX_BYTES, None):
            while not self.inbox.is_full and (largest is not None or not self.pauses_large):
                fetched = await agent.fetch(FETCH_LIMIT, max_size_bytes=largest)
                self._add(fetched)
                if not fetched:
                    break


def _log_failure(task: "asyncio.Task[Agent] | asyncio.Task[None]") -> None:
    """Log the failure of a background task; the next call reports it to the model."""
    with suppress(asyncio.CancelledError):
        problem = task.exception()
        if problem is not None:
            log.warning("not connected: %s", problem)
