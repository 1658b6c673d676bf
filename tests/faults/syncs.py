"""Controls `os.fdatasync`: counts, delays and fails its calls."""

import errno
import os
import threading

import pytest


class Syncs:
    """Control of every `fdatasync` of this process while installed."""

    def __init__(self) -> None:
        self._real = os.fdatasync
        self._open = threading.Event()
        self._open.set()
        self.begun = 0
        self.done = 0
        self.fail_next: list[OSError] = []

    def __call__(self, descriptor: int) -> None:
        self.begun += 1
        assert self._open.wait(timeout=60), "a sync was held back for ever"
        if self.fail_next:
            raise self.fail_next.pop(0)
        self._real(descriptor)
        self.done += 1

    def hold(self) -> None:
        """Block every sync until `release`."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def fail(self, number: int = errno.EIO) -> None:
        """Make the next sync fail."""
        self.fail_next.append(OSError(number, os.strerror(number)))


def install_syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Control syncs, all of which the writer thread does: the event loop is not held up."""
    syncs = Syncs()
    monkeypatch.setattr("waypost.relay.journal.writer._INLINE_SYNC_MAX_BYTES", 0)
    monkeypatch.setattr(os, "fdatasync", syncs)
    return syncs
