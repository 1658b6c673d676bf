"""Delivery of one mailbox to one connected agent.

Rule 1  Stored messages come first, in order, in batches; each batch waits for its
        acknowledgements. Then `live`, then new arrivals. All come from one queue, so no new
        message overtakes a stored one, and none is left behind at the switch.
Rule 2  A message leaves the mailbox when it is acknowledged, not before.
Rule 3  At most `unconfirmed_max` messages, and a bounded number of bytes, are unacknowledged.
Rule 4  An agent that pulls gets messages only in response to `fetch`.
Rule 5  A message that the agent's encoding cannot represent becomes a dead letter: it must not
        block the queue.
Rule 6  A message `was_stored` if it arrived before `live`, or before an agent that pulls connected.
Rule 7  A worker of a pool gets messages while fewer than `prefetch` are unacknowledged, stored and
        new ones alike, and answers to its own messages beyond that. Messages that arrived before
        the first worker of the pool was connected `was_stored`.
"""

import asyncio
from collections.abc import Callable

import msgspec

from waypost.policy.bounds import lease_max_messages, unconfirmed_max_bytes
from waypost.policy.errors import InvalidMessage
from waypost.policy.reserved_names import RELAY
from waypost.relay.relay import Consumer, Delivery
from waypost.server.sessions.outbox import Outbox
from waypost.server.sessions.receipts import AckedMessage, receipt_operations, unpack_receipt
from waypost.wire import frames
from waypost.wire.codecs import Codec
from waypost.wire.frames import FrameOperation


class DeliveryLimits(msgspec.Struct, frozen=True):
    """The batch size of stored messages, and the limit of unacknowledged ones.

    `prefetch` is the latter for a worker of a pool, apart from answers to its own messages. The
    response to a `fetch` has about `answer_max_bytes`, or else one message.
    """

    batch: int
    unconfirmed_max: int
    prefetch: int = 1
    answer_max_bytes: int = unconfirmed_max_bytes


class Deliveries:
    """Moves messages from `consumer` to `outbox`; `tier_of` returns the tier of a sender."""

    def __init__(  # noqa: PLR0913 - what deliveries touch, and what the agent asked for
        self,
        consumer: Consumer,
        outbox: Outbox,
        codec: Codec,
        limits: DeliveryLimits,
        *,
        pull: bool,
        batches: bool,
        tier_of: Callable[[str], int],
    ) -> None:
        self._consumer = consumer
        self._outbox = outbox
        self._codec = codec
        self._limits = limits
        self._pull = pull
        self._batches = batches
        self._tier_of = tier_of
        self._shared = consumer.is_shared
        has_batches = not pull and not self._shared
        self._flushing = has_batches
        self._live_from = 0 if has_batches else consumer.attached_seq
        self._stored_until = consumer.newest_order()
        self._fetch: tuple[frames.Fetch, asyncio.TimerHandle] | None = None

    @property
    def unconfirmed(self) -> int:
        """The number of messages sent and not acknowledged."""
        return len(self._consumer.in_flight)

    def fill(self) -> None:
        """Deliver as many messages as the limits allow now."""
        if self._pull:
            self._try_fetch()
            return
        consumer = self._consumer
        if self._shared:
            self._fill_share()
            return
        if self._flushing:
            if self._is_blocked(1) or consumer.is_paused():
                return  # a batch is not acknowledged yet, or none may be delivered yet
            if self._deliver(consumer.take(self._limits.batch, None, unconfirmed_max_bytes)):
                return
            if consumer.committed_seq() < self._stored_until:
                return  # messages from before the connection are not on disk yet
            self._flushing = False
            self._live_from = consumer.committed_seq()
            self._outbox.put(frames.Live())
        while not self._is_blocked(self._limits.unconfirmed_max):
            room = self._limits.unconfirmed_max - len(consumer.in_flight)
            enough = unconfirmed_max_bytes - consumer.bytes_in_flight
            if not self._deliver(consumer.take(room, None, enough)):
                return

    def _fill_share(self) -> None:
        """Deliver answers to the agent's own messages, and others up to `prefetch`."""
        consumer, limits = self._consumer, self._limits
        while consumer.has_answers and not self._is_blocked(limits.unconfirmed_max):
            room = limits.unconfirmed_max - len(consumer.in_flight)
            enough = unconfirmed_max_bytes - self._consumer.bytes_in_flight
            self._deliver(consumer.take_answers(room, None, enough))
        while not self._is_blocked(limits.prefetch):
            room = limits.prefetch - len(consumer.in_flight)
            enough = unconfirmed_max_bytes - self._consumer.bytes_in_flight
            if not self._deliver(consumer.take(room, None, enough)):
                return

    def fetch(self, request: frames.Fetch) -> None:
        """Respond now, or when a message arrives, or when the wait is over."""
        if not self._pull or self._fetch is not None:
            why = "one at a time" if self._pull else "your messages are pushed"
            self._outbox.put(frames.Error(ref=request.ref, error=f"fetch: {why}", reason="invalid"))
            return
        timer = asyncio.get_running_loop().call_later(request.wait, self._end_fetch)
        self._fetch = (request, timer)
        self._try_fetch()

    def ack(self, ids: list[str]) -> list[AckedMessage]:
        """Acknowledge messages; return those that were still in the mailbox."""
        acked = self._consumer.ack(ids)
        return [AckedMessage(one.id, one.sender, self.was_stored(one.order)) for one in acked]

    def was_stored(self, order: int) -> bool:
        """Return whether the message at a queue position waited for the agent."""
        return self._flushing or order <= self._live_from

    def nack(self, request: frames.Nack) -> None:
        """Return messages to the queue, due after the requested delay at the earliest."""
        if request.release:
            self._consumer.release(request.ids, request.delay)
        else:
            self._consumer.nack(request.ids, request.delay, request.error)

    def extend(self, request: frames.Extend) -> None:
        """Extend the leases of messages in flight; ignore other ids."""
        self._consumer.extend(request.ids, request.seconds)

    def stop(self, *, stopping: bool, reason: str = "") -> None:
        """Detach from the mailbox; unacknowledged messages return to the queue.

        `stopping` is whether the relay stops, `reason` why it has ended the connection otherwise.
        """
        if self._fetch is not None:
            self._fetch[1].cancel()
            self._fetch = None
        self._consumer.detach(stopping=stopping, reason=reason)

    def _is_blocked(self, messages_max: int) -> bool:
        """Return whether so many messages, or too many bytes, are unacknowledged."""
        if self._has_room(messages_max):
            return False
        return not (self._consumer.prune() and self._has_room(messages_max))

    def _has_room(self, messages_max: int) -> bool:
        consumer = self._consumer
        return (
            len(consumer.in_flight) < messages_max
            and consumer.bytes_in_flight < unconfirmed_max_bytes
        )

    def _deliver(self, deliveries: list[Delivery]) -> bool:
        for one in deliveries:
            for operation in self._encode(one):
                self._outbox.put(operation, one.size)
        return bool(deliveries)

    def _encode(self, one: Delivery) -> list[FrameOperation]:
        """Return a message, or a stored receipt, as operations."""
        envelope = one.envelope
        if envelope.sender == RELAY and (receipt := unpack_receipt(envelope)):
            return [*receipt_operations([receipt], envelope.id, batches=self._batches)]
        try:
            payload = self._codec.payload_from_json(envelope.payload)
        except InvalidMessage as problem:
            self._consumer.fail(envelope.id, f"cannot be encoded for its recipient: {problem}")
            return []
        if payload is not envelope.payload:
            envelope = msgspec.structs.replace(envelope, payload=payload)
        was_stored = self.was_stored(one.order)
        return [frames.Message(envelope=envelope, parent=one.parent, was_stored=was_stored)]

    def _try_fetch(self) -> None:
        if self._fetch is None:
            return
        request, timer = self._fetch
        deliveries: list[Delivery] = []
        if not self._is_blocked(lease_max_messages):
            room = min(request.limit, lease_max_messages - len(self._consumer.in_flight))
            enough = min(
                unconfirmed_max_bytes - self._consumer.bytes_in_flight,
                self._limits.answer_max_bytes,
            )
            take = self._consumer.take_answers if request.answers else self._consumer.take
            deliveries = take(room, request.max_size_bytes, enough)
        if not deliveries and request.wait:
            return
        timer.cancel()
        self._fetch = None
        self._respond(request, deliveries)

    def _respond(self, request: frames.Fetch, deliveries: list[Delivery]) -> None:
        messages: list[frames.Message] = []
        for one in deliveries:
            for operation in self._encode(one):
                if isinstance(operation, frames.Message):
                    if request.release:
                        self._consumer.shown.add(operation.envelope.id)
                    if request.tiers:
                        operation.tier = self._tier_of(operation.envelope.sender)
                    messages.append(operation)
                else:
                    self._outbox.put(operation, one.size)
        size = sum(one.size for one in deliveries)
        self._outbox.put(frames.FetchedMessages(ref=request.ref, messages=messages), size)

    def _end_fetch(self) -> None:
        if self._fetch is not None:
            request, _ = self._fetch
            self._fetch = None
            self._respond(request, [])
