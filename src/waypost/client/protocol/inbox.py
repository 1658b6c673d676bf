"""The receiving side of a session: deliveries and their acks, and the block list.

Rule 1  The application gets a message once while it holds it, and never again after its ack. A
        second delivery of an acknowledged message (the ack was still on its way) is acked again,
        without notice.
Rule 2  An ack is queued until it is written. If it is lost after that, the relay delivers again,
        and Rule 1 applies.
Rule 3  A message that the application nacked, or released without an ack, counts as new when it is
        delivered again.
Rule 4  A nack belongs to the connection it was made on: a lost connection returns all unacked
        messages anyway.
Rule 5  Messages of blocked senders are dropped, and acked with the next ack of the application, or
        some seconds later, as if it had processed them meanwhile: neither relay nor sender learns
        of the block. At most `withheld_max` wait for that, so that they do not keep other messages
        away.

Up to `remembered_max` acked ids are remembered, the oldest forgotten first. The relay lets far
fewer messages run ahead of their acks. One that does not read acks gets the newest
`UNWRITTEN_ACKS_MAX`; messages without an ack are delivered again.
"""

from collections import OrderedDict, deque
from itertools import islice

from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_literal, matches_pattern, validate_pattern
from waypost.wire.frames import DeliveryConfirm, DeliveryConfirms

BLOCKED_PATTERNS_MAX = 10_000
UNWRITTEN_ACKS_MAX = 20_000


class InboxTracker:
    """Message ids by state: held by the application, acked, ack not yet written."""

    def __init__(self, remembered_max: int, withheld_max: int) -> None:
        self._remembered_max = remembered_max
        self._withheld_max = withheld_max
        self._held: set[str] = set()
        self._acked: OrderedDict[str, None] = OrderedDict()
        self._unwritten_acks: OrderedDict[str, None] = OrderedDict()
        self._withheld: OrderedDict[str, None] = OrderedDict()
        self._confirmed: OrderedDict[tuple[str, str], None] = OrderedDict()
        # Filled by the garbage collector, at any point of any thread; emptied on arrivals.
        self._released: deque[str] = deque()

    @property
    def held_count(self) -> int:
        """Return how many messages the application holds and has not acked or nacked."""
        return len(self._held) - len(self._released)

    @property
    def has_unwritten(self) -> bool:
        """Return whether acks are waiting to be written."""
        return bool(self._unwritten_acks)

    def holds(self, message_id: str) -> bool:
        """Return whether the application has not acked or nacked a message."""
        return message_id in self._held

    def take(self, message_id: str) -> bool:
        """Record a delivery; return whether to pass it to the application."""
        while self._released:
            self._held.discard(self._released.popleft())
        if message_id in self._acked:
            self._queue_ack(message_id)
            return False
        if message_id in self._held:
            if message_id in self._withheld:  # the connection was lost meanwhile
                self._ack_withheld(message_id)
            return False
        self._held.add(message_id)
        return True

    def withhold(self, message_id: str) -> None:
        """Drop a message; its ack waits for the next `ack_withheld`."""
        self._withheld[message_id] = None
        if len(self._withheld) > self._withheld_max:
            self._ack_withheld(next(iter(self._withheld)))

    def ack_withheld(self) -> None:
        """Ack all messages that were withheld."""
        for message_id in list(self._withheld):
            self._ack_withheld(message_id)

    def ack(self, message_id: str) -> bool:
        """Record an ack; return False if the message is not held."""
        if message_id not in self._held:
            return False
        self._held.remove(message_id)
        self._queue_ack(message_id)
        self._acked[message_id] = None
        if len(self._acked) > self._remembered_max:
            self._acked.popitem(last=False)
        return True

    def nack(self, message_id: str) -> bool:
        """Record a nack; return False if the message is not held."""
        if message_id not in self._held:
            return False
        self._held.remove(message_id)
        return True

    def release(self, message_id: str) -> None:
        """Record that the application dropped a message without ack or nack. Thread-safe."""
        self._released.append(message_id)

    def take_confirmations(
        self, confirm: DeliveryConfirm | DeliveryConfirms
    ) -> list[DeliveryConfirm]:
        """Record delivery confirmations; return those that are new. Acks their id."""
        if confirm.id is not None:
            self.take(confirm.id)
            self.ack(confirm.id)
        recipient = confirm.recipient
        if isinstance(confirm, DeliveryConfirm):
            return [confirm] if self._is_new((confirm.message_id, recipient)) else []
        return [
            DeliveryConfirm(message_id=message_id, recipient=recipient, was_stored=was_stored)
            for message_id, was_stored in confirm.confirmed
            if self._is_new((message_id, recipient))
        ]

    def _is_new(self, confirmed: tuple[str, str]) -> bool:
        """Record a message and its recipient; return False if they were confirmed before."""
        if confirmed in self._confirmed:
            return False
        self._confirmed[confirmed] = None
        if len(self._confirmed) > self._remembered_max:
            self._confirmed.popitem(last=False)
        return True

    def take_acks(self, limit: int) -> list[str]:
        """Return up to `limit` ids to ack, the oldest first, and count them as written."""
        ids = list(islice(self._unwritten_acks, limit))
        for message_id in ids:
            del self._unwritten_acks[message_id]
        return ids

    def _ack_withheld(self, message_id: str) -> None:
        del self._withheld[message_id]
        self.ack(message_id)

    def _queue_ack(self, message_id: str) -> None:
        self._unwritten_acks[message_id] = None
        if len(self._unwritten_acks) > UNWRITTEN_ACKS_MAX:
            self._unwritten_acks.popitem(last=False)


class BlockList:
    """Subjects and patterns of blocked senders. `count` is the number of messages dropped."""

    def __init__(self) -> None:
        self._literal: set[str] = set()
        self._patterns: set[str] = set()
        self.count = 0

    def add(self, pattern: str) -> None:
        """Block senders under `pattern`. Raises `InvalidSubject` for an invalid pattern."""
        validate_pattern(pattern)
        if len(self._literal) + len(self._patterns) >= BLOCKED_PATTERNS_MAX:
            raise InvalidInput(f"block list full: at most {BLOCKED_PATTERNS_MAX:,} patterns")
        (self._literal if is_literal(pattern) else self._patterns).add(pattern)

    def remove(self, pattern: str) -> None:
        """Unblock `pattern`; ignore one that was never added."""
        self._literal.discard(pattern)
        self._patterns.discard(pattern)

    def blocks(self, sender: str) -> bool:
        """Return whether `sender` is blocked, and count it if so."""
        if not self._literal and not self._patterns:
            return False
        blocked = sender in self._literal or any(
            matches_pattern(sender, pattern) for pattern in self._patterns
        )
        self.count += blocked
        return blocked

    def patterns(self) -> list[str]:
        """Return every pattern, sorted."""
        return sorted(self._literal | self._patterns)
