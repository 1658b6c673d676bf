"""What one connected agent is given out of its mailbox.

Rule 1  Stored messages first, in order, in batches; each batch waits for its confirmations. Then
        `live`, then whatever arrives. All of it comes out of one line, so nothing live overtakes
        what was stored, and nothing is left behind at the switch.
Rule 2  A message leaves the mailbox when it is confirmed, and not before.
Rule 3  Ahead of the confirmations are at most `unconfirmed_max` messages, and not many bytes.
Rule 4  An agent that pulls is given what it asks for, when it asks.
Rule 5  A message that cannot be said in the agent's encoding becomes a dead letter: it must not
        keep the others from coming, again and again.
"""

import asyncio
from collections.abc import Callable

import msgspec

from waypost.policy.bounds import lease_max_messages, unconfirmed_max_bytes
from waypost.policy.errors import InvalidMessage
from waypost.policy.reserved_names import RELAY
from waypost.relay.delivery.consumers import Consumer, Delivery
from waypost.server.sessions.outbox import Outbox
from waypost.server.sessions.receipts import Confirmed, unpack
from waypost.wire import frames
from waypost.wire.frames import Codec, FrameOperation


class Limits(msgspec.Struct, frozen=True):
    """How many stored messages go out at once, and how many may be ahead of confirmations.

    One answer to a `fetch` has about `answer_max_bytes`, or else one message.
    """

    batch: int
    unconfirmed_max: int
    answer_max_bytes: int = unconfirmed_max_bytes


class Deliveries:
    """Puts messages of `consumer` into `outbox`. `tier_of` tells how well a sender is known."""

    def __init__(
        self,
        consumer: Consumer,
        outbox: Outbox,
        codec: Codec,
        limits: Limits,
        *,
        pull: bool,
        tier_of: Callable[[str], int],
    ) -> None:
        self._consumer = consumer
        self._outbox = outbox
        self._codec = codec
        self._limits = limits
        self._pull = pull
        self._tier_of = tier_of
        self._flushing = not pull
        self._live_from = 0
        self._stored_until = consumer.newest_order()
        self._bytes_held = 0
        self._sizes: dict[str, int] = {}
        self._waited: set[str] = set()
        self._fetch: tuple[frames.Fetch, asyncio.TimerHandle] | None = None

    @property
    def unconfirmed(self) -> int:
        """Messages ahead of the agent's confirmations."""
        return len(self._consumer.in_flight)

    def fill(self) -> None:
        """Hand out what may be handed out now."""
        if self._pull:
            self._try_fetch()
            return
        consumer = self._consumer
        if self._flushing:
            if self._is_held_up(1):
                return  # a batch waits for its confirmations
            if self._hand_out(consumer.take(self._limits.batch, None, unconfirmed_max_bytes)):
                return
            if consumer.committed_seq() < self._stored_until:
                return  # what was there when the agent came is not on disk yet
            self._flushing = False
            self._live_from = consumer.committed_seq()
            self._outbox.put(frames.Live())
        while not self._is_held_up(self._limits.unconfirmed_max):
            room = self._limits.unconfirmed_max - len(consumer.in_flight)
            enough = unconfirmed_max_bytes - self._bytes_held
            if not self._hand_out(consumer.take(room, None, enough)):
                return

    def fetch(self, asked: frames.Fetch) -> None:
        """Answer now, or when something arrives, or when the wait is over."""
        if not self._pull or self._fetch is not None:
            why = "one at a time" if self._pull else "your messages come by themselves"
            self._outbox.put(frames.Error(ref=asked.ref, error=f"fetch: {why}", reason="invalid"))
            return
        timer = asyncio.get_running_loop().call_later(asked.wait, self._end_fetch)
        self._fetch = (asked, timer)
        self._try_fetch()

    def ack(self, ids: list[str]) -> list[Confirmed]:
        """These are done; gives those that were still there."""
        held = self._consumer.in_flight
        waited = {one: one in self._waited or one not in held for one in ids}
        done = self._consumer.ack(ids)
        for one in ids:
            self._let_go(one)
        return [Confirmed(one.id, one.sender, waited[one.id]) for one in done]

    def nack(self, asked: frames.Nack) -> None:
        """These were not done."""
        for message in self._consumer.nack(asked.ids, asked.delay):
            self._let_go(message.id)

    def stop(self) -> None:
        """What was not confirmed waits again."""
        if self._fetch is not None:
            self._fetch[1].cancel()
            self._fetch = None
        self._consumer.detach()

    def _is_held_up(self, messages_max: int) -> bool:
        """Whether so many messages, or too many bytes, are with the agent, unconfirmed."""
        held = self._consumer.in_flight
        if len(held) < messages_max and self._bytes_held < unconfirmed_max_bytes:
            return False
        for one in self._consumer.prune():
            self._let_go(one)
        return len(held) >= messages_max or self._bytes_held >= unconfirmed_max_bytes

    def _let_go(self, message_id: str) -> None:
        self._waited.discard(message_id)
        self._bytes_held -= self._sizes.pop(message_id, 0)

    def _hand_out(self, handed: list[Delivery]) -> bool:
        for one in handed:
            for operation in self._open(one):
                self._outbox.put(operation, one.size)
        return bool(handed)

    def _open(self, one: Delivery) -> list[FrameOperation]:
        """A message, or kept confirmations, ready to be sent; held from now on."""
        envelope = one.envelope
        waited = self._flushing or self._pull or one.order <= self._live_from
        self._let_go(envelope.id)  # it may have come before
        self._sizes[envelope.id] = one.size
        self._bytes_held += one.size
        if waited:
            self._waited.add(envelope.id)
        if envelope.sender == RELAY and (kept := unpack(envelope)):
            return list(kept)
        try:
            payload = self._codec.payload_from_json(envelope.payload)
        except InvalidMessage as problem:
            self._let_go(envelope.id)
            self._consumer.fail(envelope.id, f"cannot be handed over: {problem}")
            return []
        if payload is not envelope.payload:
            envelope = msgspec.structs.replace(envelope, payload=payload)
        return [frames.Message(envelope=envelope, parent=one.parent, was_stored=waited)]

    def _try_fetch(self) -> None:
        if self._fetch is None:
            return
        asked, timer = self._fetch
        handed: list[Delivery] = []
        if not self._is_held_up(lease_max_messages):
            room = min(asked.limit, lease_max_messages - len(self._consumer.in_flight))
            enough = min(unconfirmed_max_bytes - self._bytes_held, self._limits.answer_max_bytes)
            handed = self._consumer.take(room, asked.max_size_bytes, enough)
        if not handed and asked.wait:
            return
        timer.cancel()
        self._fetch = None
        self._answer_fetch(asked, handed)

    def _answer_fetch(self, asked: frames.Fetch, handed: list[Delivery]) -> None:
        messages: list[frames.Message] = []
        for one in handed:
            for operation in self._open(one):
                if isinstance(operation, frames.Message):
                    if asked.tiers:
                        operation.tier = self._tier_of(operation.envelope.sender)
                    messages.append(operation)
                else:
                    self._outbox.put(operation, one.size)
        size = sum(one.size for one in handed)
        self._outbox.put(frames.FetchedMessages(ref=asked.ref, messages=messages), size)

    def _end_fetch(self) -> None:
        if self._fetch is not None:
            asked, _ = self._fetch
            self._fetch = None
            self._answer_fetch(asked, [])
