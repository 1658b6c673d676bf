"""The scheduled messages of all mailboxes, by the order in which they are due and by sender."""

import heapq
from collections.abc import Iterable, Iterator

from waypost.relay.state.mailbox import SCHEDULED, Message

_STALE_MAX = 64


class ScheduledMessages:
    """Finds scheduled messages without a look at every mailbox."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        """Due time, order and message; entries of messages that are no longer scheduled are stale.
        """
        self._by_sender: dict[str, dict[str, dict[str, Message]]] = {}
        """By sender, id and endpoint."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, message: Message) -> None:
        """Add a message that was just scheduled."""
        heapq.heappush(self._heap, (message.due_us, message.order, message))
        own = self._by_sender.setdefault(message.sender, {})
        own.setdefault(message.id, {})[message.endpoint] = message
        self._count += 1

    def discard(self, message: Message) -> None:
        """Remove a message that is about to leave this state; ignore one that is not scheduled."""
        if message.state is not SCHEDULED:
            return
        own = self._by_sender[message.sender]
        del own[message.id][message.endpoint]
        if not own[message.id]:
            del own[message.id]
        if not own:
            del self._by_sender[message.sender]
        self._count -= 1
        if len(self._heap) > 2 * self._count + _STALE_MAX:
            self._compact()

    def first(self) -> Message | None:
        """Return the message that is due first, or None."""
        while self._heap:
            _, order, message = self._heap[0]
            if message.state is SCHEDULED and message.order == order:
                return message
            heapq.heappop(self._heap)
        return None

    def of(self, sender: str | None) -> Iterator[Message]:
        """Yield the messages of one sender, or all, in no certain order."""
        for own in self._of(sender):
            for parts in own.values():
                yield from parts.values()

    def find(self, ids: Iterable[str], sender: str | None) -> list[Message]:
        """Return the messages of these ids, at all endpoints, of one sender or all."""
        return [
            message
            for message_id in ids
            for own in self._of(sender)
            for message in own.get(message_id, {}).values()
        ]

    def _of(self, sender: str | None) -> Iterable[dict[str, dict[str, Message]]]:
        if sender is None:
            return self._by_sender.values()
        return (self._by_sender.get(sender, {}),)

    def _compact(self) -> None:
        """Drop stale entries, whose messages would otherwise stay in memory."""
        self._heap = [(one.due_us, one.order, one) for one in self.of(None)]
        heapq.heapify(self._heap)
