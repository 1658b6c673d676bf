"""Sweeping of messages: expired ones, leases past their deadline, old dead letters."""

import logging
from collections import Counter
from collections.abc import Callable

from waypost.policy.settings import Settings
from waypost.relay.delivery.dead_letters import DeadLetters
from waypost.relay.delivery.leases import Leases
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.ledger import Ledger

log = logging.getLogger("waypost.relay")


class MailTasks:
    """What sweeping means for messages."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        leases: Leases,
        dead_letters: DeadLetters,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._leases = leases
        self._dead_letters = dead_letters
        self._settings = settings

    def expire(self, now_us: int) -> None:
        """Expire mail, with a count per recipient in the log."""
        counts: Counter[str] = Counter()
        for mailbox in list(self._ledger.state.mailboxes.values()):
            if now_us // 1000 > mailbox.earliest_ttl:
                counts[mailbox.subject] += self._transitions.expire_due(mailbox)
        for subject, count in counts.items():
            if count:
                log.info("expired %d messages for %s", count, subject)

    def take_back(self, now_us: int) -> None:
        """Take back leases past their deadline."""
        self._leases.time_out()

    def purge(self, now_us: int) -> None:
        """Throw away dead letters past their retention."""
        kept_us = self._settings().housekeeping.dead_letter_retention_ms * 1000
        self._dead_letters.purge(now_us - kept_us, None, "retention is over")
