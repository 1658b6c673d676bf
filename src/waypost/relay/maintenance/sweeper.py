"""Runs the maintenance tasks of a relay at intervals of `sweep_interval_ms`."""

import logging
from collections.abc import Callable

from waypost.policy.settings import Settings
from waypost.relay.clock import Cancel, Timers
from waypost.relay.errors import RelayStopped
from waypost.relay.state.ledger import Ledger

log = logging.getLogger("waypost.relay")


class Sweeper:
    """Sweeps every `sweep_interval_ms` of the relay's clock."""

    def __init__(self, ledger: Ledger, timers: Timers, settings: Callable[[], Settings]) -> None:
        self._ledger = ledger
        self._timers = timers
        self._settings = settings
        self._tasks: list[Callable[[int], object]] = []
        self._cancel: Cancel | None = None

    def add(self, task: Callable[[int], object]) -> None:
        """Call `task` with the time (µs) at every sweep."""
        self._tasks.append(task)

    def start(self) -> None:
        """Set the timer for the next sweep, in place of one already set."""
        self.stop()
        wait_us = self._settings().housekeeping.sweep_interval_ms * 1000
        self._cancel = self._timers.call_at(self._ledger.now_us() + wait_us, self._tick)

    def stop(self) -> None:
        """No more sweeps."""
        if self._cancel is not None:
            self._cancel()

    def sweep(self) -> None:
        """Do all tasks now; one that the disk will not let be done is left for the next time."""
        now_us = self._ledger.now_us()
        for task in self._tasks:
            try:
                task(now_us)
            except OSError as problem:
                log.warning("sweeping: %s", problem)

    def _tick(self) -> None:
        try:
            self.sweep()
        except RelayStopped as problem:
            log.error("sweeping stopped: %s", problem)
            return
        self.start()
