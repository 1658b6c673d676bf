"""Redriving and purging dead letters: messages that could not be delivered."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.payloads import PayloadStore


class DeadLetters:
    """Redrives and purges dead letters."""

    def __init__(self, ledger: Ledger, transitions: Transitions, payloads: PayloadStore) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._payloads = payloads

    def redrive(self, ids: str | Iterable[str], subject: str | None) -> int:
        """Put dead letters back at the end of their queues; return how many.

        One that is not due yet is scheduled again. No check is repeated, not even that of the
        budget, because an operator decided; the time to live still holds. An unreadable dead letter
        is not redriven.
        """
        wanted = {ids} if isinstance(ids, str) else set(ids)
        found = [
            message
            for message in self._ledger.state.dead_messages(subject)
            if message.id in wanted and not self._payloads.read_problem(message)
        ]
        for message in found:
            self._transitions.redrive(message)
        return len(found)

    def purge(self, older_than: datetime | timedelta | None, subject: str | None) -> int:
        """Purge dead letters older than an instant or a duration, or all; return how many."""
        before_us = None
        if isinstance(older_than, timedelta):
            before_us = self._ledger.now_us() - older_than // timedelta(microseconds=1)
        elif older_than is not None:
            before_us = int(older_than.timestamp() * 1_000_000)
        return self.purge_before(before_us, subject, "purged")

    def purge_before(self, before_us: int | None, subject: str | None, reason: str) -> int:
        """Purge dead letters that failed before `before_us`, or all; return how many."""
        found = self._ledger.state.dead_messages(subject, before_us)
        for message in found:
            self._transitions.purge(message, reason)
        return len(found)
