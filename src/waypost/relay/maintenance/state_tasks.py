"""Sweeping of everything the relay remembers besides messages."""

import logging
from collections.abc import Callable

from waypost.policy.settings import Settings
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.state.checkpoints import Checkpoints
from waypost.relay.state.ledger import Ledger

log = logging.getLogger("waypost.relay")


class StateTasks:
    """What sweeping means for senders, breakers, refusals and duplicate ids."""

    def __init__(
        self,
        ledger: Ledger,
        breaker_feedback: BreakerFeedback,
        rejections: RejectionLog,
        checkpoints: Checkpoints,
        settings: Callable[[], Settings],
        on_room: Callable[[], object],
    ) -> None:
        """`on_room` is called when a full disk has room again."""
        self._ledger = ledger
        self._breaker_feedback = breaker_feedback
        self._rejections = rejections
        self._checkpoints = checkpoints
        self._settings = settings
        self._on_room = on_room

    def forget(self, now_us: int) -> None:
        """Forget idle senders and breakers; write counted refusals of minutes that are over."""
        settings = self._settings()
        window_ms = settings.rate_limit.window_secs * 1000
        self._ledger.state.windows.sweep(now_us // 1000, window_ms)
        idle_ms = settings.housekeeping.breaker_idle_ms
        for move in self._breaker_feedback.breakers.sweep(now_us // 1000, idle_ms):
            self._breaker_feedback.record_transition(move, now_us)
        self._rejections.sweep(now_us)

    def checkpoint(self, now_us: int) -> None:
        """Bring the index up to date and drop duplicate ids past their window."""
        kept_us = self._settings().housekeeping.duplicate_window_ms * 1000
        self._checkpoints.forget_duplicates(now_us - kept_us)
        self._checkpoints.write_if_idle()

    def recover_space(self, now_us: int) -> None:
        """After a full disk, see whether there is room again."""
        if self._ledger.journal.full and self._ledger.journal.restore_ballast():
            log.warning("there is room on the disk again: publishes are taken")
            self._on_room()
