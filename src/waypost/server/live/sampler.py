"""The sampling loop of a served relay: takes one sample per second, for all viewers together.

Rule 1  The sampling rate does not depend on the number of viewers.
Rule 2  All mailboxes are counted in one walk, for the samples and for all who ask. With more
        than `COUNTED_FOR_EACH_MAX` of them, a count is shared for a second, and longer if it is
        slow: counting takes at most a fiftieth of the time.
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
from waypost.relay.inspection.stats import Survey, Totals
from waypost.relay.relay import Relay
from waypost.server.live.node import NodeCheck
from waypost.server.live.rows import (
    INBOX_ROWS_MAX,
    AgentRow,
    InboxRow,
    RowTable,
    agent_rows,
    inbox_rows,
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
COUNTED_FOR_EACH_MAX = 1000
COUNTING_SHARE = 50
"""Mailboxes are counted again after this many times the duration of the last count."""


class Sampler:
    """Samples one relay; `stream` broadcasts one topic to a viewer."""

    def __init__(self, relay: Relay, hub: Hub) -> None:
        self._relay = relay
        self._hub = hub
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._counter = IntervalCounter(relay.inspect(), relay.now_us())
        self._node = NodeCheck(relay)
        self._survey = Survey(Totals(), 0, 0.0, None, [])
        self._count_due_us = 0
        self._counting = asyncio.Lock()
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
        await self._measure(topic)
        channel = self._channels[topic]
        if once:
            yield channel.snapshot()
            return
        async with aclosing(channel.follow()) as frames:
            async for one in frames:
                yield one

    async def survey(self) -> Survey:
        """Return the counts of all mailboxes; of very many, those of the last second or longer."""
        async with self._counting:
            inspector, now_us = self._relay.inspect(), self._relay.now_us()
            if now_us >= self._count_due_us or inspector.mailbox_count() <= COUNTED_FOR_EACH_MAX:
                began_ns = time.monotonic_ns()
                self._survey = await inspector.survey(INBOX_ROWS_MAX)
                took_us = (time.monotonic_ns() - began_ns) // 1000
                self._count_due_us = now_us + max(INTERVAL_US, COUNTING_SHARE * took_us)
        return self._survey

    def status(self) -> RelayStatus:
        """Return the status of the relay, with the last counts."""
        stuck = {
            one.subject: one.stuck_since_us for one in self._hub.connected() if one.stuck_since_us
        }
        return relay_status(self._relay, self._survey, stuck, self._node.health())

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

    async def _measure(self, wanted: Topic | None = None) -> None:
        """Measure mailboxes, agents and breakers, and broadcast the changes.

        The rows of a table are made for its viewers, and for one more if it is `wanted`.
        """
        survey, relay = await self.survey(), self._relay
        at_us, connected = relay.now_us(), self._hub.connected()
        if wanted == "inboxes" or self._channels["inboxes"]:
            agents = {one.subject: bool(one.stuck_since_us) for one in connected}
            self._inboxes.replace(inbox_rows(survey.fullest, agents), survey.mailboxes, at_us)
            self._broadcast("inboxes", self._inboxes.changes)
        if wanted == "agents" or self._channels["agents"]:
            rows = agent_rows(connected, relay.inspect())
            self._agents.replace(rows, len(connected), at_us)
            self._broadcast("agents", self._agents.changes)
        self._broadcast("numbers", lambda: encode_frame("standing", self.status()))
        breakers = encode_frame("breakers", breakers_status(relay))
        if breakers != self._breakers:
            self._breakers = breakers
            self._broadcast("numbers", lambda: breakers)

    def _take_sample(self) -> None:
        sample, survey = self._counter.take(self._relay.now_us()), self._survey
        totals = survey.totals
        sample.pending, sample.held = totals.pending, totals.leased
        sample.scheduled = totals.scheduled
        sample.dead, sample.bytes = totals.dead, totals.bytes
        sample.inboxes, sample.pressure = survey.mailboxes, survey.pressure
        sample.connected, sample.stuck = len(self._hub), self._hub.stuck_count()
        self._samples.append(sample)
        self._broadcast("numbers", lambda: encode_frame("sample", sample))

    def _status_frames(self) -> Iterator[bytes]:
        yield encode_frame("history", list(self._samples))
        yield encode_frame("standing", self.status())
        yield encode_frame("breakers", breakers_status(self._relay))

    def _broadcast(self, topic: Topic, encode: Callable[[], bytes]) -> None:
        """Send a frame to the viewers of `topic`; encode nothing while there are none."""
        if self._channels[topic]:
            self._channels[topic].broadcast(encode())
