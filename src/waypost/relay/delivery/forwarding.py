"""Messages to other partitions: the half of a publish that the partition of its sender decides.

Rule 1  A message waits in the outbox of a partition from its commit here until the decision there.
        Both are in the journal: after a crash, it is carried again.
Rule 2  One batch at a time is on its way to a partition, and it is carried again until it is
        decided. So the messages of one sender to one endpoint are decided in their order.
Rule 3  The other partition decides about a message once, however often it is carried.
Rule 4  A publish waits for the decision, but not longer than `forward_wait_max_ms`. The message
        then stays in the outbox; the same id, published again, waits for the same decision.
Rule 5  A message that is not decided when its time to live is over leaves the outbox.

This module does not know how messages are carried: that is up to the `Carrier`.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from waypost.policy.bounds import (
    forward_batch_max_bytes,
    forward_batch_max_messages,
    forward_retry_max_ms,
    forward_retry_min_ms,
    forward_wait_max_ms,
    outbox_max_bytes,
    outbox_max_messages,
)
from waypost.policy.errors import InvalidMessage
from waypost.policy.partitions import partition_of, partitions_of
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import is_reserved, outbox_of
from waypost.relay.clock import Timers
from waypost.relay.errors import (
    OtherPartition,
    PartitionUnavailable,
    RelayError,
    RelayStopped,
)
from waypost.relay.state.duplicates import duplicate_key
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.relay.state.payloads import PayloadStore
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Decided, Forwarded
from waypost.wire.outcomes import ForwardOutcome
from waypost.wire.results import PublishResult, Rejection

log = logging.getLogger("waypost.relay")

UNDECIDED_TEXT = (
    "the recipient's partition has not decided yet: it will when it is available; publish the same"
    " message id again to wait for that"
)
EXPIRED_TEXT = (
    "the recipient's partition gave no decision within the time to live; the message may have"
    " arrived there"
)
OUTBOX_FULL_TEXT = "too many messages wait for the recipient's partition, which is not available"


class Carrier(Protocol):
    """Carries messages between the relays of a cluster."""

    async def carry(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        """Return the decisions of `partition` about `messages` of `origin`, in their order, once
        they are durable. Raise `PartitionUnavailable` or `OSError` if there are none, or if it is
        not known; then the same messages are carried again."""
        ...


class Partition(msgspec.Struct, frozen=True):
    """One of `count` relays that share all subjects (`policy.partitions`), and how to reach the
    others."""

    number: int
    count: int
    carrier: Carrier

    def holds(self, subject: str) -> bool:
        """Return whether a subject belongs to this partition."""
        return partition_of(subject, self.count) == self.number

    def require(self, subject: str) -> None:
        """Raise `OtherPartition` if a subject does not belong here."""
        if not self.holds(subject):
            raise OtherPartition(subject, partition_of(subject, self.count))


class ForwardedResult(PublishResult, kw_only=True):
    """The result of a publish that other partitions decide. It is complete when `done` is."""

    done: asyncio.Future[None]
    until_us: int
    error: str = ""

    def add(self, outcome: ForwardOutcome) -> None:
        """Add the decision of one partition."""
        self.delivered_to += outcome.delivered_to
        self.rejected.extend(outcome.rejected)
        self.retry_after_ms = max(self.retry_after_ms, outcome.retry_after_ms)
        self.error = self.error or outcome.error


Batch = list[tuple[Message, Forwarded]]


class _Waiting(msgspec.Struct):
    """A publish that `partitions` have to decide, and the results that wait for them."""

    partitions: set[int]
    results: list[ForwardedResult]


class Forwarding:
    """Forwards the messages of one relay, in a task for each partition that has any."""

    def __init__(
        self, partition: Partition, ledger: Ledger, timers: Timers, payloads: PayloadStore
    ) -> None:
        self._partition = partition
        self._ledger = ledger
        self._state = ledger.state
        self._timers = timers
        self._payloads = payloads
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._new: dict[int, Forwarded] = {}
        """Messages of this run that were not carried yet, by order."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopped = False

    @property
    def number(self) -> int:
        """The partition of this relay."""
        return self._partition.number

    def holds(self, subject: str) -> bool:
        """Return whether a subject belongs to this partition."""
        return self._partition.holds(subject)

    def route(self, sender: str, subject: str) -> tuple[int, ...]:
        """Return the partitions that decide about a publish; () if only this one does.

        Raises `OtherPartition` if its sender belongs to another one, which has its rate window.
        """
        partition = self._partition
        if not is_reserved(sender):
            partition.require(sender)
        found = partitions_of(subject, partition.count)
        return () if found == (partition.number,) else found

    def require_room(self, sender: str, message_id: str | None, partitions: Sequence[int]) -> str:
        """Return why a message cannot be forwarded now; empty if it can.

        Raises `InvalidMessage` if a message of another sender has its id.
        """
        for partition in partitions:
            outbox = self._outbox(partition)
            if message_id is not None and outbox.holds_from_other_sender(message_id, sender):
                raise InvalidMessage(f"message id {message_id} is taken: choose another")
            depth, size = outbox.occupancy.depth, outbox.occupancy.bytes
            if depth >= outbox_max_messages or size >= outbox_max_bytes:
                return OUTBOX_FULL_TEXT
        return ""

    def forward(
        self, event: Accepted, content: bytes, partitions: Sequence[int]
    ) -> tuple[ForwardedResult, Forwarded]:
        """Record a message for other `partitions`, and carry it there once that is durable.

        Return its result, and its first line.
        """
        event.size = stored_size(event, event.budget, event.subject, len(content))
        lines = [Forwarded.of(event, partition) for partition in partitions]
        for part, forwarded in enumerate(lines):
            partition, outbox = forwarded.partition, self._outbox(forwarded.partition)
            forwarded.endpoint, forwarded.part, forwarded.parts = outbox.subject, part, len(lines)
            message = self._ledger.record_arrival(forwarded, content)
            if outbox.occupancy.bytes <= forward_batch_max_bytes:  # it is carried soon
                forwarded.payload, forwarded.body = msgspec.Raw(content), None
                self._new[message.order] = forwarded
            self._start(partition)
        key = (event.sender, event.id)
        waiting = self._waiting[key] = _Waiting(set(partitions), [])
        known = PublishResult(message_id="", delivered_to=0, budget_cut=event.budget_cut)
        return self._result_of(event.id, waiting, known), lines[0]

    def join(self, sender: str, message_id: str) -> ForwardedResult | None:
        """Return the result of a message that is still to be decided; None if there is none."""
        waiting = self._waiting.get((sender, message_id))
        known = PublishResult(message_id="", delivered_to=0)
        if waiting is None:
            undecided = {
                partition
                for partition in range(self._partition.count)
                if message_id in self._outbox(partition).live
                and not self._outbox(partition).holds_from_other_sender(message_id, sender)
            }
            if not undecided:
                return None
            waiting = self._waiting[sender, message_id] = _Waiting(undecided, [])
        first = self._state.duplicates.get(duplicate_key(sender, message_id))
        return self._result_of(message_id, waiting, known if first is None else first.result())

    async def wait(self, result: PublishResult) -> PublishResult:
        """Return the result of a publish once it is complete, or that it is not yet.

        Raises `InvalidMessage` if it is not valid where it was forwarded to.
        """
        if not isinstance(result, ForwardedResult):
            return result
        decided = await self._timers.wait(result.done, result.until_us)
        if result.error:
            raise InvalidMessage(result.error)
        rejected, retry_after_ms = result.rejected, result.retry_after_ms
        if not decided:
            rejected = [*rejected, Rejection("", Reason.PARTITION_UNAVAILABLE, UNDECIDED_TEXT)]
            retry_after_ms = max(retry_after_ms, forward_retry_max_ms)
        return PublishResult(
            message_id=result.message_id,
            delivered_to=result.delivered_to,
            rejected=rejected,
            retry_after_ms=retry_after_ms,
            mailbox_pressure=result.mailbox_pressure,
            budget_cut=result.budget_cut,
        )

    def resume(self) -> None:
        """Carry the messages that an earlier run has left in the outboxes."""
        for partition in range(self._partition.count):
            if self._outbox(partition).live:
                self._start(partition)

    async def stop(self) -> None:
        """Stop carrying; what is left stays in the outboxes, and its publishers wait no longer."""
        self._stopped = True
        for waiting in self._waiting.values():
            for result in waiting.results:
                result.done.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _outbox(self, partition: int) -> Mailbox:
        return self._state.outbox(outbox_of(partition))

    def _result_of(
        self, message_id: str, waiting: _Waiting, known: PublishResult
    ) -> ForwardedResult:
        """Return a result that is complete when all partitions have decided; `known` so far."""
        result = ForwardedResult(
            message_id=message_id,
            delivered_to=known.delivered_to,
            rejected=list(known.rejected),
            budget_cut=known.budget_cut,
            done=asyncio.get_running_loop().create_future(),
            until_us=self._ledger.now_us() + forward_wait_max_ms * 1000,
        )
        waiting.results.append(result)
        return result

    def _start(self, partition: int) -> None:
        if partition not in self._tasks and not self._stopped:
            run = self._run(partition, self._outbox(partition))
            self._tasks[partition] = asyncio.get_running_loop().create_task(run)

    async def _run(self, partition: int, outbox: Mailbox) -> None:
        """Carry the messages of an outbox until it is empty."""
        batch: Batch = []
        retry_ms = forward_retry_min_ms
        try:
            while outbox.live:
                await self._ledger.sync()
                batch = self._take(partition, outbox, batch)
                if not batch:
                    continue
                try:
                    outcomes = await self._carry(partition, batch)
                except (PartitionUnavailable, OSError) as problem:
                    if retry_ms == forward_retry_min_ms:
                        log.warning("%d messages wait: %s", len(outbox.live), problem)
                    until_us = self._ledger.now_us() + retry_ms * 1000
                    await self._timers.wait(asyncio.get_running_loop().create_future(), until_us)
                    retry_ms = min(2 * retry_ms, forward_retry_max_ms)
                    continue
                for (message, _), outcome in zip(batch, outcomes, strict=True):
                    self._decide(partition, message, outcome)
                batch, retry_ms = [], forward_retry_min_ms
        except RelayStopped as stopped:
            log.error("forwarding stopped: %s", stopped)
        finally:
            del self._tasks[partition]

    def _take(self, partition: int, outbox: Mailbox, batch: Batch) -> Batch:
        """Return the messages to carry next: `batch` again, if there is one.

        Those whose time to live is over leave the outbox.
        """
        now_us, committed = self._ledger.now_us(), self._ledger.journal.committed.seq
        now_ms = now_us // 1000
        if batch:
            late = [one for one, _ in batch if one.ttl < now_ms] + outbox.take_expired(now_ms)
            taken = [one for one in batch if one[0].ttl >= now_ms]
        else:
            found, late = outbox.take(
                forward_batch_max_messages, None, now_us, committed, forward_batch_max_bytes
            )
            taken = self._read(partition, found)
        expired = Rejection("", Reason.PARTITION_UNAVAILABLE, EXPIRED_TEXT)
        for message in late:
            self._decide(partition, message, ForwardOutcome(rejected=(expired,)))
        return taken

    def _read(self, partition: int, messages: Sequence[Message]) -> Batch:
        """Return messages with their content; one that is damaged leaves the outbox."""
        batch: Batch = []
        for message in messages:
            try:
                new = self._new.pop(message.order, None)
                batch.append((message, new or self._payloads.read_forwarded(message)))
            except (RelayError, OSError) as problem:
                self._decide(partition, message, ForwardOutcome(error=str(problem)))
        return batch

    async def _carry(self, partition: int, batch: Batch) -> Sequence[ForwardOutcome]:
        messages = [forwarded for _, forwarded in batch]
        outcomes = await self._partition.carrier.carry(self.number, partition, messages)
        if len(outcomes) != len(messages):
            raise PartitionUnavailable(partition, "it answered for other messages")
        return outcomes

    def _decide(self, partition: int, message: Message, outcome: ForwardOutcome) -> None:
        """Record the decision of a partition, and complete the results that wait for it."""
        with self._ledger.one_time as now_us:
            self._ledger.record(
                Decided(
                    at_us=now_us,
                    id=message.id,
                    endpoint=message.endpoint,
                    sender=message.sender,
                    delivered_to=outcome.delivered_to,
                    rejected=outcome.rejected,
                    retry_after_ms=outcome.retry_after_ms,
                    error=outcome.error,
                )
            )
            pairs = ((message.sender, endpoint, now_us // 1000) for endpoint in outcome.endpoints)
            self._ledger.record_pairs(pairs)
        self._new.pop(message.order, None)
        waiting = self._waiting.get((message.sender, message.id))
        if waiting is None:
            return
        waiting.partitions.discard(partition)
        for result in waiting.results:
            result.add(outcome)
            if not waiting.partitions and not result.done.done():
                result.done.set_result(None)
        if not waiting.partitions:
            del self._waiting[message.sender, message.id]
