"""Askers: senders that wait for the reply to a message, and get the error if its recipient fails.

Rule 1  An asker is in memory only, for as long as it waits. Whether it gets the error is not
        journaled: the dead letter is, and its reason has the same error.
Rule 2  It gets the error that the recipient gave, and nothing else.
Rule 3  Of a message to several endpoints, all have to fail.
"""

from collections.abc import Callable

import msgspec

from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message

OnFailed = Callable[[str], None]


class _Asker(msgspec.Struct):
    copies: int
    until_us: int
    on_failed: OnFailed


class Askers:
    """The askers of one relay, by sender and message id."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: dict[tuple[str, str], _Asker] = {}

    def add(
        self, sender: str, message_id: str, copies: int, until_us: int, on_failed: OnFailed
    ) -> None:
        """Call `on_failed` with the last error if all `copies` fail before `until_us`."""
        self._waiting[sender, message_id] = _Asker(copies, until_us, on_failed)

    def remove(self, sender: str, message_id: str) -> None:
        """Forget an asker, which waits no more."""
        self._waiting.pop((sender, message_id), None)

    def is_waiting(self, message: Message) -> bool:
        """Return whether the sender of `message` waits for the reply."""
        asker = self._waiting.get((message.sender, message.id))
        return asker is not None and asker.until_us > self._ledger.now_us()

    def on_failed(self, message: Message, error: str) -> None:
        """Record that one copy of a message has failed for good."""
        asker = self._waiting.get((message.sender, message.id))
        if asker is None:
            return
        asker.copies -= 1
        if asker.copies <= 0:
            self.remove(message.sender, message.id)
            if asker.until_us > self._ledger.now_us():
                asker.on_failed(error)
