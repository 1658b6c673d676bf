"""The sampling loop of a served relay: takes one sample per second, for all viewers together.

Rule 1  The sampling rate does not depend on the number of viewers.
Rule 2  Counting mailboxes takes at most a fiftieth of the time: with very many mailboxes they are
        counted less often.
Rule 3  The last `SAMPLES_MAX` samples are kept, so that a new viewer sees the past minutes.
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
from waypost.server.live.node import check_node
from waypost.server.live.rows import (
    AgentRow,
    InboxRow,
    InboxSnapshot,
    RowTable,
    agent_rows,
    take_inbox_snapshot,
)
from waypost.server.live.samples import (
    IntervalCounter,
    RelayStatus,
    Sample,
    breakers_status,
    relay_status,
)
from waypost.server.live.sse import Channel, encode_frame
from waypost.server.sessions.hub import Hub

log = logging.getLogger("waypost.server")

Topic = Literal["numbers", "inboxes", "agents"]

INTERVAL_US = 1_000_000
SAMPLES_MAX = 600
COUNTING_SHARE = 50
"""Mailboxes are counted again after this many times the duration of the last count."""


class Sampler:
    """Samples one relay; `stream` broadcasts one topic to a viewer."""

    def __init__(self, relay: Relay, hub: Hub) -> None:
        self._relay = relay
        self._hub = hub
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._started_us = relay.now_us()
        self._counter = IntervalCounter(relay.inspect(), self._started_us)
        self._inbox_snapshot = InboxSnapshot()
        self._count_due_s = 0.0
        self._inboxes: RowTable[InboxRow] = RowTable()
        self._agents: RowTable[AgentRow] = RowTable()
        self._breakers = b""
        self._channels: dict[Topic, Channel] = {
            "numbers": Channel(self._status_frames),
            "inboxes": Channel(lambda: [self._inboxes.whole()]),
            "agents": Channel(lambda: [self._agents.whole()]),
        }
        self._task = asyncio.create_task(self._run())

    @property
    def is_full(self) -> bool:
        """Whether the limit of viewers is reached."""
        return sum(map(len, self._channels.values())) >= viewer_connections_max

    async def stream(self, topic: Topic, *, once: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield a snapshot and, unless `once`, the frames that follow."""
        if once or not self._samples:
            await self._measure(at_once=True)
        channel = self._channels[topic]
        if once:
            yield channel.snapshot()
            return
        async with aclosing(channel.follow()) as frames:
            async for one in frames:
                yield one

    async def status(self) -> RelayStatus:
        """Count the mailboxes, and return the status of the relay."""
        await self._measure(at_once=True)
        return self._status()

    def disconnect_all(self) -> None:
        """Disconnect all viewers."""
        for channel in self._channels.values():
            channel.close()

    async def close(self) -> None:
        """Disconnect all viewers and stop sampling."""
        self.disconnect_all()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        next_us = self._relay.now_us() + INTERVAL_US
        while True:
            await self._relay.wait_until(next_us)
            next_us = max(next_us + INTERVAL_US, self._relay.now_us())
            try:
                await self._measure()
                self._take_sample()
            except Exception:
                log.exception("sampling failed")

    async def _measure(self, *, at_once: bool = False) -> None:
        """Measure mailboxes, agents and breakers, and broadcast the changes."""
        began_s, relay = time.monotonic(), self._relay
        connected = self._hub.connected()
        if at_once or began_s >= self._count_due_s:
            agents = {one.subject: bool(one.stuck_since_us) for one in connected}
            self._inbox_snapshot = await take_inbox_snapshot(relay.inspect(), agents)
            self._count_due_s = began_s + COUNTING_SHARE * (time.monotonic() - began_s)
        at_us, inboxes = relay.now_us(), self._inbox_snapshot
        self._inboxes.replace(inboxes.rows, inboxes.inboxes, at_us)
        self._broadcast("inboxes", self._inboxes.changes)
        rows = agent_rows(connected, relay.inspect())
        self._agents.replace(rows, len(connected), at_us)
        self._broadcast("agents", self._agents.changes)
        self._broadcast("numbers", lambda: encode_frame("standing", self._status()))
        breakers = encode_frame("breakers", breakers_status(relay))
        if breakers != self._breakers:
            self._breakers = breakers
            self._broadcast("numbers", lambda: breakers)

    def _take_sample(self) -> None:
        sample, inboxes = self._counter.take(self._relay.now_us()), self._inbox_snapshot
        sample.pending, sample.held = inboxes.pending, inboxes.leased
        sample.scheduled = inboxes.scheduled
        sample.dead, sample.bytes = inboxes.dead, inboxes.bytes
        sample.inboxes, sample.pressure = inboxes.inboxes, inboxes.pressure
        sample.connected, sample.stuck = len(self._hub), self._hub.stuck_count()
        self._samples.append(sample)
        self._broadcast("numbers", lambda: encode_frame("sample", sample))

    def _status_frames(self) -> Iterator[bytes]:
        yield encode_frame("history", list(self._samples))
        yield encode_frame("standing", self._status())
        yield encode_frame("breakers", breakers_status(self._relay))

    def _status(self) -> RelayStatus:
        stuck = {
            one.subject: one.stuck_since_us for one in self._hub.connected() if one.stuck_since_us
        }
        node = check_node(self._relay, self._started_us)
        return relay_status(self._relay, self._inbox_snapshot, stuck, node)

    def _broadcast(self, topic: Topic, encode: Callable[[], bytes]) -> None:
        """Send a frame to the viewers of `topic`; encode nothing while there are none."""
        if self._channels[topic]:
            self._channels[topic].broadcast(encode())
