"""Being an agent at a relay for as long as the process lives.

Rule 1  It connects when it starts and fetches what was stored. If that fails, each call tries
        again and says what is wrong: a relay may be started later than the program that uses it.
Rule 2  Mail is fetched as it comes and put on the desk; nothing is acknowledged here.
Rule 3  Small messages are fetched first and always. Large ones only while not too many of them
        lie here: the relay lets a bounded number of bytes run ahead of confirmations, and an
        answer that somebody waits for must not stand behind them.
"""

import asyncio
import logging
from contextlib import suppress
from types import TracebackType
from typing import Self

from waypost.client.address import parse_address
from waypost.client.aio import Agent
from waypost.client.errors import OperationRejected
from waypost.client.http import tls_context
from waypost.client.identity import Identity
from waypost.client.options import ClientOptions
from waypost.mcp.inbox import Desk
from waypost.mcp.relay_api import Routes
from waypost.policy.bounds import unconfirmed_max_bytes

log = logging.getLogger("waypost.mcp")

SMALL_MAX_BYTES = 65_536
LARGE_HELD_MAX_BYTES = unconfirmed_max_bytes // 2
FETCH_LIMIT = 100
FETCH_WAIT_S = 10.0
CROWDED_WAIT_S = 1.0
"""With no room for large messages; some may be acknowledged meanwhile."""

CATCH_UP_MAX_S = 5.0
"""How long a call waits until what was stored is here."""


class Presence:
    """One agent at one relay. `async with` it; any number of calls may use it at once."""

    def __init__(self, url: str, identity: Identity, *, operator_token: str | None = None) -> None:
        self.identity = identity
        self.desk = Desk()
        self.routes = Routes(url, identity, operator_token)
        self.url = self.routes.url
        self._agent: Agent | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._attempt: asyncio.Task[Agent] | None = None

    async def __aenter__(self) -> Self:
        self._begin_attempt()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in (self._attempt, self._fetching):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._agent is not None:
            await self._agent.close()
        await self.routes.close()

    @property
    def subject(self) -> str:
        """Who this agent is."""
        return self.identity.subject

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._is_alive and self._agent is not None and self._agent.is_connected

    @property
    def is_crowded(self) -> bool:
        """Whether large messages stay at the relay until others are acknowledged."""
        large = (one.size for one in self.desk.all() if one.size > SMALL_MAX_BYTES)
        return sum(large) >= LARGE_HELD_MAX_BYTES

    async def agent(self) -> Agent:
        """The connected agent; connects if need be. Raises the `WaypostError` that says why not."""
        if self._is_alive and self._agent is not None:
            return self._agent
        if self._attempt is None or self._attempt.done():
            self._begin_attempt()
        assert self._attempt is not None
        # One attempt serves all who wait, so one that is given up must not end it.
        return await asyncio.shield(self._attempt)

    async def caught_up(self) -> Desk:
        """The desk, once what was stored is on it, or after a while. Raises as `agent` does."""
        await self.agent()
        await self.desk.until(lambda: self.desk.is_caught_up or None, CATCH_UP_MAX_S)
        return self.desk

    @property
    def _is_alive(self) -> bool:
        return self._fetching is not None and not self._fetching.done()

    def _begin_attempt(self) -> None:
        self._attempt = asyncio.create_task(self._connect())
        self._attempt.add_done_callback(_note)

    async def _connect(self) -> Agent:
        # Asked for a token first: whoever is not let in is told why at once, and in words.
        await self.routes.log_in()
        before, self._agent = self._agent, None
        if before is not None:
            await before.close()
        options = ClientOptions(receive="pull", send_timeout_s=20.0, tls=tls_context(self.url))
        agent = Agent(parse_address(self.url), self.identity, options)
        try:
            await agent.open()
        except BaseException:
            await agent.close()
            raise
        self.desk.begin_anew()
        self._agent = agent
        self._fetching = asyncio.create_task(self._fetch(agent))
        self._fetching.add_done_callback(_note)
        return agent

    async def _fetch(self, agent: Agent) -> None:
        """Until the agent is of no use any more; then it raises why."""
        while True:
            try:
                await self._fetch_stored(agent)
                self.desk.caught_up()
                crowded = self.is_crowded
                largest = SMALL_MAX_BYTES if crowded else None
                wait_s = CROWDED_WAIT_S if crowded else FETCH_WAIT_S
                self.desk.put(await agent.fetch(FETCH_LIMIT, max_size_bytes=largest, wait=wait_s))
            except TimeoutError:
                continue  # the relay is away; the agent connects again by itself
            except OperationRejected as problem:
                log.warning("cannot fetch: %s", problem)
                await asyncio.sleep(CROWDED_WAIT_S)

    async def _fetch_stored(self, agent: Agent) -> None:
        for largest in (SMALL_MAX_BYTES, None):
            while largest is not None or not self.is_crowded:
                got = await agent.fetch(FETCH_LIMIT, max_size_bytes=largest)
                self.desk.put(got)
                if not got:
                    break


def _note(task: "asyncio.Task[Agent] | asyncio.Task[None]") -> None:
    """Whoever calls next is told; nobody waits for it now."""
    with suppress(asyncio.CancelledError):
        problem = task.exception()
        if problem is not None:
            log.warning("not connected: %s", problem)
