"""Runs the maintenance tasks of a relay, so that memory and disk use stay bounded.

Swept are expired messages, leases past their deadline, idle senders and breakers, rejection
counts, dead letters and duplicate ids past their retention, journal segments that are no longer
needed, and the ballast after a full disk.
"""

import logging
from collections.abc import Callable

from waypost.policy.settings import Settings
from waypost.relay.clock import Cancel, Timers
from waypost.relay.errors import RelayStopped
from waypost.relay.state.ledger import Ledger

log = logging.getLogger("waypost.relay")


class Sweeper:
    """Runs every task at intervals of `sweep_interval_ms` of the relay's clock."""

    def __init__(self, ledger: Ledger, timers: Timers, settings: Callable[[], Settings]) -> None:
        self._ledger = ledger
        self._timers = timers
        self._settings = settings
        self._tasks: list[Callable[[int], object]] = []
        self._cancel: Cancel | None = None

    def add(self, *tasks: Callable[[int], object]) -> None:
        """Call each task with the time (µs) at every sweep, in this order."""
        self._tasks.extend(tasks)

    def start(self) -> None:
        """Set the timer for the next sweep, replacing the current one."""
        self.stop()
        wait_us = self._settings().housekeeping.sweep_interval_ms * 1000
        self._cancel = self._timers.call_at(self._ledger.now_us() + wait_us, self._tick)

    def stop(self) -> None:
        """Cancel the next sweep."""
        if self._cancel is not None:
            self._cancel()

    def sweep(self) -> None:
        """Run all tasks now; a task that fails on the disk is retried at the next sweep."""
        for task in self._tasks:
            try:
                with self._ledger.one_time as now_us:
                    task(now_us)
            except OSError as problem:
                log.warning("maintenance task failed: %s", problem)

    def _tick(self) -> None:
        """Sweep, then set the timer again unless the relay has stopped."""
        try:
            self.sweep()
        except RelayStopped as problem:
            log.error("maintenance stopped: %s", problem)
            return
        self.start()
