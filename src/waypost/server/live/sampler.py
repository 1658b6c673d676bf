"""The pulse of a served relay: once a second everything is measured, for all viewers together.

Rule 1  How often it is measured does not depend on how many watch.
Rule 2  Measuring takes at most a fiftieth of the time: with very many mailboxes, they are looked
        at less often.
Rule 3  The last `SAMPLES_MAX` samples are kept, so that who comes later sees the past minutes.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Literal

from waypost.policy.bounds import viewer_connections_max
from waypost.relay.relay import Relay
from waypost.server.live.agents import AgentRow, agent_rows
from waypost.server.live.frames import frame
from waypost.server.live.rows import Census, InboxRow, take_census
from waypost.server.live.samples import Sample, Sampler
from waypost.server.live.sse import Channel
from waypost.server.live.standing import breakers_of, standing_of
from waypost.server.live.tables import Table
from waypost.server.sessions.hub import Hub

log = logging.getLogger("waypost.server")

Show = Literal["numbers", "inboxes", "agents"]

INTERVAL_US = 1_000_000
SAMPLES_MAX = 600
CENSUS_SHARE = 50
"""Mailboxes are looked at again after so many times the time it took."""


class Feed:
    """Measures one relay; `show` gives a stream of one kind of news."""

    def __init__(self, relay: Relay, hub: Hub) -> None:
        self._relay = relay
        self._hub = hub
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._sampler = Sampler(relay.inspect(), relay.now_us())
        self._census = Census()
        self._census_due_s = 0.0
        self._inboxes: Table[InboxRow] = Table()
        self._agents: Table[AgentRow] = Table()
        self._breakers = b""
        self._channels: dict[Show, Channel] = {
            "numbers": Channel(self._everything),
            "inboxes": Channel(lambda: [self._inboxes.whole()]),
            "agents": Channel(lambda: [self._agents.whole()]),
        }
        self._task = asyncio.create_task(self._run())

    @property
    def is_full(self) -> bool:
        """Whether there are as many viewers as there may be."""
        return sum(map(len, self._channels.values())) >= viewer_connections_max

    async def show(self, which: Show, *, once: bool = False) -> AsyncGenerator[bytes, None]:
        """Frames: everything there is to know now, and unless `once`, what happens from then on."""
        if once or not self._samples:
            await self._look(at_once=True)
        channel = self._channels[which]
        if once:
            yield channel.now()
            return
        async with aclosing(channel.follow()) as frames:
            async for one in frames:
                yield one

    def dismiss_all(self) -> None:
        """Viewers have to go: the relay is about to end."""
        for channel in self._channels.values():
            channel.close()

    async def close(self) -> None:
        """Measure no more."""
        self.dismiss_all()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        next_us = self._relay.now_us() + INTERVAL_US
        while True:
            await self._relay.wait_until(next_us)
            next_us = max(next_us + INTERVAL_US, self._relay.now_us())
            try:
                await self._look()
                self._take_sample()
            except Exception:
                log.exception("measuring failed")

    async def _look(self, *, at_once: bool = False) -> None:
        """How mailboxes, agents and breakers stand, and tell what changed."""
        began_s, relay = time.monotonic(), self._relay
        connected = self._hub.connected()
        if at_once or began_s >= self._census_due_s:
            here = {one.subject for one in connected}
            self._census = await take_census(relay.inspect(), here)
            self._census_due_s = began_s + CENSUS_SHARE * (time.monotonic() - began_s)
        at_us, census = self._relay.now_us(), self._census
        self._inboxes.replace(census.rows, census.inboxes, at_us)
        self._tell("inboxes", self._inboxes.changes)
        rows = agent_rows(connected, relay.inspect())
        self._agents.replace(rows, len(connected), at_us)
        self._tell("agents", self._agents.changes)
        self._tell("numbers", lambda: frame("standing", standing_of(relay, census, at_us)))
        breakers = frame("breakers", breakers_of(relay))
        if breakers != self._breakers:
            self._breakers = breakers
            self._tell("numbers", lambda: breakers)

    def _take_sample(self) -> None:
        sample, census = self._sampler.take(self._relay.now_us()), self._census
        sample.pending, sample.held = census.pending, census.leased
        sample.dead, sample.bytes = census.dead, census.bytes
        sample.inboxes, sample.pressure = census.inboxes, census.pressure
        sample.connected = len(self._hub)
        self._samples.append(sample)
        self._tell("numbers", lambda: frame("sample", sample))

    def _everything(self) -> Iterator[bytes]:
        yield frame("history", list(self._samples))
        yield frame("standing", standing_of(self._relay, self._census, self._relay.now_us()))
        yield frame("breakers", breakers_of(self._relay))

    def _tell(self, which: Show, make: Callable[[], bytes]) -> None:
        """Nothing is put into words while nobody watches."""
        if self._channels[which]:
            self._channels[which].send(make())
