"""Maintenance of the state: messages, senders, breakers, rejection counts, duplicate ids."""

import logging
from collections.abc import Callable

from waypost.policy.settings import Settings
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.dead_letters import DeadLetters
from waypost.relay.delivery.leases import Leases
from waypost.relay.delivery.life_signs import LifeSigns
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.checkpoints import Checkpoints
from waypost.relay.state.ledger import Ledger

log = logging.getLogger("waypost.relay")


class MailTasks:
    """Expires messages, ends leases past their deadline, purges old dead letters."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        leases: Leases,
        life: LifeSigns,
        dead_letters: DeadLetters,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._leases = leases
        self._life = life
        self._dead_letters = dead_letters
        self._settings = settings

    def expire(self, now_us: int) -> None:
        """Expire messages, and log a count for each recipient of any since the last sweep."""
        for mailbox in list(self._ledger.state.mailboxes.values()):
            if now_us // 1000 > mailbox.earliest_ttl:
                self._transitions.expire_due(mailbox)
        self._transitions.expiries.write(now_us)

    def end_leases(self, now_us: int) -> None:
        """Return messages to their queue whose lease is past its deadline, or agent stuck."""
        self._leases.time_out()
        self._life.time_out()

    def purge(self, now_us: int) -> None:
        """Purge dead letters past their retention."""
        retention_us = self._settings().housekeeping.dead_letter_retention_ms * 1000
        self._dead_letters.purge_before(now_us - retention_us, None, "retention is over")


class StateTasks:
    """Forgets idle senders and breakers, writes checkpoints, and resumes after a full disk."""

    def __init__(
        self,
        ledger: Ledger,
        breaker_feedback: BreakerFeedback,
        rejections: RejectionLog,
        checkpoints: Checkpoints,
        settings: Callable[[], Settings],
        on_room: Callable[[], object],
    ) -> None:
        """Take `on_room`, which is called when a full disk has room again."""
        self._ledger = ledger
        self._breaker_feedback = breaker_feedback
        self._rejections = rejections
        self._checkpoints = checkpoints
        self._settings = settings
        self._on_room = on_room

    def forget(self, now_us: int) -> None:
        """Forget idle senders and breakers; journal the rejection counts of past minutes."""
        settings = self._settings()
        window_ms = settings.rate_limit.window_secs * 1000
        self._ledger.state.windows.sweep(now_us // 1000, window_ms)
        idle_ms = settings.housekeeping.breaker_idle_ms
        for transition in self._breaker_feedback.breakers.sweep(now_us // 1000, idle_ms):
            self._breaker_feedback.record_transition(transition, now_us)
        self._rejections.sweep(now_us)

    def checkpoint(self, now_us: int) -> None:
        """Bring the index up to date, and drop duplicate ids past their window."""
        window_us = self._settings().housekeeping.duplicate_window_ms * 1000
        self._checkpoints.forget_duplicates(now_us - window_us)
        self._checkpoints.write_if_idle()

    def recover_space(self, now_us: int) -> None:
        """Accept publishes again once a full disk has room."""
        if self._ledger.journal.full and self._ledger.journal.restore_ballast():
            log.warning("the disk has room again: publishes are accepted")
            self._on_room()
