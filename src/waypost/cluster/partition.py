"""A partition on one node: follows its log, takes over when no other node does, owns until fenced.

Rule 1  An owner is the node whose `owner` event is the last one in the log. A relay that is open
        here and is not the owner any more confirms nothing and delivers nothing.
Rule 2  The lease decides who tries. It never decides who owns.
Rule 3  Whatever fails, the node follows again, and tries again after a part of the lease.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import nats.errors

from waypost.cluster.follower import Follower
from waypost.cluster.lease import Lease
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.errors import RelayError
from waypost.relay.journal.log import Log
from waypost.relay.journal.replicated import Ownership
from waypost.relay.relay import Relay

log = logging.getLogger("waypost.cluster")

_RENEWALS = 3
"""Renewals of the lease within its duration, and attempts to get it."""

_RETRIES = 12
"""Attempts within its duration to renew a lease that was missed: more than those to get it, so that
an owner keeps its lease when the servers have elected a leader."""
_MISSED_MAX = 3.0
"""Durations of the lease for which it may be missed: servers may restart, and the log decides."""

CHECKPOINT_EVENTS = 100_000
"""Events that a follower copies before it writes a checkpoint: those behind it are folded when it
takes over."""


class PartitionRunner:
    """Runs one partition in a data directory of its own.

    `open_relay` opens the relay of an ownership on that directory, for a block. `wants` tells
    whether this node should try to own a partition that no other node does.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        shared: Log,
        lease: Lease,
        open_relay: Callable[[Ownership], AbstractAsyncContextManager[Relay]],
        wants: Callable[[], bool] = lambda: True,
    ) -> None:
        self._data = DataDir(data_dir)
        self._log = shared
        self._lease = lease
        self._open_relay = open_relay
        self._wants = wants
        self._given_up = asyncio.Event()
        self._pause_s = lease.lease_s / _RENEWALS
        self._stopping = asyncio.Event()
        self.relay: Relay | None = None
        self.epoch = 0
        """The epoch of this node's last ownership."""
        self.problem = ""
        """Why this node neither owns the partition nor could take it over from its owner."""

    async def run(self, node: str, address: str = "") -> None:
        """Follow and own, in turns, until `stop` is called."""
        try:
            while not self._stopping.is_set():
                try:
                    self._data.create()
                    ownership = await self._follow(node, address)
                    if ownership is not None:
                        await self._own(ownership)
                except Exception as problem:
                    self.problem = str(problem) or type(problem).__name__
                    is_bug = not isinstance(problem, RelayError | OSError | nats.errors.Error)
                    log.warning("cluster: %s: %s", self._data.root, self.problem, exc_info=is_bug)
                    await self._lease.release()
                    await self._wait(self._stopping.wait())
        finally:
            await self._lease.release()

    def stop(self) -> None:
        """End `run`: close the relay and give up the lease."""
        self._stopping.set()

    def step_down(self) -> None:
        """Give up the partition, for another node to take over."""
        self._given_up.set()

    async def _follow(self, node: str, address: str) -> Ownership | None:
        """Follow the log until this node may take over; return None if it is to stop."""
        lock = DirectoryLock(self._data)
        try:
            follower = Follower(self._data, self._log)
            try:
                await follower.check_end()
                while not self._stopping.is_set():
                    if self._wants() and await self._lease.hold():
                        return await follower.take_over(node, address)
                    await follower.follow(self._pause_s)
                    self.problem = follower.problem
                    if follower.unindexed_events >= CHECKPOINT_EVENTS:
                        await follower.checkpoint()
                return None
            finally:
                await follower.close()
        finally:
            lock.release()

    async def _own(self, ownership: Ownership) -> None:
        """Own the partition until the relay is fenced, fails, or is to stop."""
        self._given_up.clear()
        async with self._open_relay(ownership) as relay:
            self.relay, self.epoch, self.problem = relay, ownership.epoch, ""
            log.info("cluster: %s is owned, epoch %d", self._data.root, self.epoch)
            try:
                await self._keep(relay)
            finally:
                self.relay = None
        await self._lease.release()

    async def _keep(self, relay: Relay) -> None:
        """Renew the lease until something ends the ownership.

        A lease that was lost ends it, too: without traffic, an owner would not notice the next one.
        """
        ends = [
            asyncio.ensure_future(one)
            for one in (
                relay.inspect().journal_failure(),
                self._stopping.wait(),
                self._given_up.wait(),
            )
        ]
        lease_s, clock = self._lease.lease_s, asyncio.get_running_loop().time
        held, renewed = True, clock()
        try:
            while clock() - renewed < _MISSED_MAX * lease_s:
                pause_s = self._pause_s if held else lease_s / _RETRIES
                done, _ = await asyncio.wait(
                    ends, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return
                held = await self._lease.hold()
                renewed = clock() if held else renewed
        finally:
            for one in ends:
                one.cancel()

    async def _wait(self, event: "asyncio._CoroutineLike[object]") -> None:
        try:
            await asyncio.wait_for(event, self._pause_s)
        except TimeoutError:
            pass
