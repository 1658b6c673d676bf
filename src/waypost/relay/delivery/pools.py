"""Pools: the consumers of one mailbox, and which of them gets a message.

Rule 1  A mailbox has one consumer, or a pool whose workers share it. A message is in flight at one
        of them only.
Rule 2  Messages that arrive together are delivered in turns: one at a time, to the worker with the
        fewest in flight, and among equals to the one that has waited longest.
Rule 3  A worker that asks for several messages gets no more than its share of those pending.
Rule 4  An answer goes to the worker that sent its parent, ahead of the queue. Too many of them, and
        those that are returned, go to any worker.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from waypost.policy.bounds import turn_max_messages
from waypost.relay.state.mailbox import PENDING, Mailbox, Message

log = logging.getLogger("waypost.relay")


class Worker(Protocol):
    """A consumer; in its `turn` it may take that many messages, otherwise its share."""

    turn: int | None
    in_flight: dict[str, Message]

    def notify(self) -> None:
        """Take messages, if it wants any."""

    def has_sent(self, message_id: str) -> bool:
        """Return whether it sent a message, as far as it remembers."""


W = TypeVar("W", bound=Worker)


class Pool(Generic[W]):
    """The consumers of one mailbox; `since_seq` is the position at which the first was attached."""

    def __init__(self, subject: str, *, shared: bool) -> None:
        self.shared = shared
        self.since_seq = 0
        self.workers: dict[W, None] = {}
        """In the order of their last turns."""
        self._subject = subject
        self._routed_seq = 0

    def begin(self, seq: int) -> None:
        """Record the position in the journal at which the first consumer is attached."""
        self.since_seq = self._routed_seq = seq

    def notify(self) -> None:
        """Let the workers take messages, in turns; an error in one does not affect others."""
        if len(self.workers) == 1:
            for worker in tuple(self.workers):
                self._notify(worker)
            return
        waiting, turns = dict.fromkeys(self.workers), 0
        while waiting and turns < turn_max_messages:
            worker = min(waiting, key=lambda one: len(one.in_flight))
            worker.turn = 1
            self._notify(worker)
            took, worker.turn = worker.turn == 0, None
            del waiting[worker]
            if took:
                del self.workers[worker]
                self.workers[worker] = waiting[worker] = None  # behind its equals
                turns += 1
        if waiting:
            asyncio.get_running_loop().call_soon(self.notify)

    def most(self, worker: W, mailbox: Mailbox) -> int:
        """Return how many messages `worker` may take now."""
        if worker.turn is not None:
            return worker.turn
        pending = len(mailbox.live) - mailbox.leased_count
        return max(1, -(-pending // len(self.workers)))

    def new_answers(
        self, mailbox: Mailbox, committed_seq: int, parent_of: Callable[[Message], str | None]
    ) -> list[tuple[W, Message]]:
        """Return the answers that arrived since the last call, in order, with who asked."""
        routed, self._routed_seq = self._routed_seq, committed_seq
        arrived: list[Message] = []
        for message in reversed(mailbox.queue):
            if message.order <= routed:
                break
            if message.order <= committed_seq and message.state is PENDING:
                arrived.append(message)
        parents = ((message, parent_of(message)) for message in reversed(arrived))
        return [
            (worker, message)
            for message, parent in parents
            if parent is not None and (worker := self._sender_of(parent)) is not None
        ]

    def _sender_of(self, message_id: str) -> W | None:
        """Return the worker that sent a message; None if none remembers it."""
        return next((one for one in self.workers if one.has_sent(message_id)), None)

    def _notify(self, worker: W) -> None:
        try:
            worker.notify()
        except Exception:
            log.exception("delivery to the consumer of %s failed", self._subject)
