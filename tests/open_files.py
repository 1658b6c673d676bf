"""Fails the test that leaves sockets and files open, and no other.

What a test leaves open is closed when Python collects it, at any later time: its ResourceWarning,
which is an error, would fail whichever test runs then. So a test after which more files are open
than before is followed by a collection, whose warnings are its own.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DESCRIPTORS = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")


class OpenFiles:
    """The number of open files before a test, and the check after it."""

    def __init__(self) -> None:
        self._before = 0

    def begin(self) -> None:
        """Remember how many are open before a test, without those of a failed test before it."""
        if hasattr(sys, "last_value"):
            with unraisable_errors():
                # pytest keeps the frames of a failure for a debugger, until it runs the next test.
                for name in ("last_type", "last_value", "last_traceback", "last_exc"):
                    vars(sys).pop(name, None)
                gc.collect()
        self._before = _count()

    def end(self) -> None:
        """Fail if the test left something open that nothing refers to any more."""
        if _count() <= self._before:
            return
        with unraisable_errors() as leaks:
            gc.collect()
        if leaks:
            pytest.fail("\n".join(["the test left files or sockets open:", *leaks]), pytrace=False)


@contextmanager
def unraisable_errors() -> Iterator[list[str]]:
    """Yield a list of the errors of finalizers in the block, which nobody else sees."""
    errors: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda problem: errors.append(repr(problem.exc_value))
    try:
        yield errors
    finally:
        sys.unraisablehook = before


def _count() -> int:
    return len(os.listdir(_DESCRIPTORS))
