"""What the relay has delivered, and what became of it.

Rule 1  The application gets a message once while it holds it, and never again after its ack. What
        the relay delivers twice (it could not know that the ack was on its way) is confirmed
        again without a word.
Rule 2  An ack is kept until it is written. If it is lost after that, the relay delivers again,
        and Rule 1 answers.
Rule 3  A message that the application gave back, or let go of without an answer, is new when it
        comes again.
Rule 4  A nack is for the connection it was made on: a lost connection gives everything back anyway.

`remembered_max` ids are remembered as done, the oldest forgotten first. The relay lets far fewer
messages run ahead of their confirmations.
"""

from collections import deque
from itertools import islice

from waypost.wire.frames import DeliveryConfirm


class Inbox:
    """Ids of messages, by what the application did with them."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._held: set[str] = set()
        self._done: dict[str, None] = {}
        self._acks: dict[str, None] = {}
        self._told: dict[tuple[str, str], None] = {}
        # Filled by the garbage collector, at any point of any thread; emptied on arrivals.
        self._let_go: deque[str] = deque()

    @property
    def held(self) -> int:
        """How many messages the application has and has not answered."""
        return len(self._held) - len(self._let_go)

    @property
    def has_unwritten(self) -> bool:
        """Whether acks wait to be written."""
        return bool(self._acks)

    def take(self, message_id: str) -> bool:
        """A message arrived: whether the application is to have it."""
        while self._let_go:
            self._held.discard(self._let_go.popleft())
        if message_id in self._done:
            self._acks[message_id] = None
            return False
        if message_id in self._held:
            return False
        self._held.add(message_id)
        return True

    def ack(self, message_id: str) -> bool:
        """The application is done with it; False if it was answered before."""
        if message_id not in self._held:
            return False
        self._held.remove(message_id)
        self._acks[message_id] = None
        self._done[message_id] = None
        if len(self._done) > self._remembered_max:
            del self._done[next(iter(self._done))]
        return True

    def nack(self, message_id: str) -> bool:
        """The application gives it back; False if it was answered before."""
        if message_id not in self._held:
            return False
        self._held.remove(message_id)
        return True

    def let_go(self, message_id: str) -> None:
        """Nobody holds it any more, and nobody answered. Safe in any thread."""
        self._let_go.append(message_id)

    def tell(self, confirm: DeliveryConfirm) -> bool:
        """A confirmation arrived: whether the application is to hear of it. Kept ones are acked."""
        if confirm.id is not None:
            self.take(confirm.id)
            self.ack(confirm.id)
        told = (confirm.message_id, confirm.recipient)
        if told in self._told:
            return False
        self._told[told] = None
        if len(self._told) > self._remembered_max:
            del self._told[next(iter(self._told))]
        return True

    def take_acks(self, limit: int) -> list[str]:
        """Up to `limit` ids to confirm, the oldest first."""
        ids = list(islice(self._acks, limit))
        for message_id in ids:
            del self._acks[message_id]
        return ids
