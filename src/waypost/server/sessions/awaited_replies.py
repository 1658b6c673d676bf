"""Messages of one session whose sender waits for a reply, and is notified if all recipients fail.

At most `awaited_replies_max` are known, the newest.
"""

from collections import OrderedDict
from collections.abc import Callable

from waypost.policy.bounds import awaited_replies_max
from waypost.relay.relay import Relay
from waypost.wire.frames import RequestFailure
from waypost.wire.results import PublishResult


class AwaitedReplies:
    """Calls `on_failed` when the recipients of a message have failed."""

    def __init__(
        self, relay: Relay, subject: str, on_failed: Callable[[RequestFailure], None]
    ) -> None:
        self._relay = relay
        self._subject = subject
        self._on_failed = on_failed
        self._awaited: OrderedDict[str, None] = OrderedDict()

    def add(self, result: PublishResult, seconds: float) -> None:
        """Wait up to `seconds` for the reply to a message with this result."""
        message_id, copies = result.message_id, result.delivered_to
        until_us = self._relay.now_us() + round(seconds * 1_000_000)

        def on_failed(error: str) -> None:
            self._awaited.pop(message_id, None)
            self._on_failed(RequestFailure(message_id=message_id, error=error))

        self._awaited[message_id] = None
        self._relay.askers.add(self._subject, message_id, copies, until_us, on_failed)
        if len(self._awaited) > awaited_replies_max:
            self._forget_oldest()

    def clear(self) -> None:
        """Wait for no reply any more."""
        while self._awaited:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        message_id, _ = self._awaited.popitem(last=False)
        self._relay.askers.remove(self._subject, message_id)
