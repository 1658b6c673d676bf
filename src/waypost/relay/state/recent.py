"""Messages that agents acknowledged lately: where their arrivals are in the journal.

An agent may answer a message after its acknowledgement, when the mailbox no longer has it. Most do
not, so an acknowledgement costs one append; look-ups sort in what was appended since the last one.
"""

from collections import deque
from collections.abc import Iterable

from waypost.policy.bounds import acked_in_memory_max
from waypost.relay.journal.segments import Location
from waypost.relay.state.mailbox import Message

_GENERATION_MAX = acked_in_memory_max // 3


class RecentlyAcked:
    """The newest acknowledged messages, about a third of `acked_in_memory_max` at least.

    Two generations: when the younger is full, the older one is dropped.
    """

    def __init__(self) -> None:
        self._new: deque[Message] = deque(maxlen=_GENERATION_MAX)
        self._younger: dict[tuple[str, str], Location] = {}
        self._older: dict[tuple[str, str], Location] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._younger) + len(self._older)

    def add(self, messages: Iterable[Message]) -> None:
        """Add acknowledged messages."""
        self._new.extend(messages)

    def get(self, endpoint: str, message_id: str) -> Location | None:
        """Return the location of a delivered message's arrival, or None if it is not known here."""
        while self._new:
            message = self._new.popleft()
            if message.via:  # it was delivered
                self._younger[message.endpoint, message.id] = message.location
                if len(self._younger) >= _GENERATION_MAX:
                    self._younger, self._older = {}, self._younger
        key = (endpoint, message_id)
        return self._younger.get(key) or self._older.get(key)
