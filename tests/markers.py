"""The markers `spark`, `browser` and `process`: what a test needs beside the process it runs in.

Rule 1. A test that uses a fixture of `FIXTURE_MARKERS` is marked automatically.
Rule 2. A test that starts a process in any other way carries its marker in the source.
Rule 3. Starting a process fails a test without a marker, in every run: a missing marker cannot
        hide until somebody runs `--quick` on a machine without Java.
"""

import multiprocessing.process
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

MARKERS = ("spark", "browser", "process")
FIXTURE_MARKERS = {
    "spark": "spark",
    "browser": "browser",
    "distribution": "process",
    "in_use": "process",
    "nats_server": "process",
    "shell": "process",
}


def mark_by_fixtures(items: list[pytest.Item]) -> None:
    """Add the markers of the fixtures that each test uses, directly or through other fixtures."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if marker := FIXTURE_MARKERS.get(fixture):
                item.add_marker(marker)


def is_marked(item: pytest.Item) -> bool:
    """Return whether the test needs Spark, a browser or another process."""
    return any(item.get_closest_marker(marker) for marker in MARKERS)


class ProcessGuard:
    """Fails the test that starts a process while `is_armed`."""

    def __init__(self) -> None:
        self.is_armed = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Check every process started through `subprocess`, `asyncio` or `multiprocessing`."""
        starters: list[tuple[Any, str]] = [
            (subprocess.Popen, "__init__"),  # asyncio uses it, too
            (multiprocessing.process.BaseProcess, "start"),
        ]
        for owner, method in starters:
            patch.setattr(owner, method, self._checked(getattr(owner, method)))

    def _checked(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any, **options: Any) -> Any:
            if self.is_armed:
                # Not an Exception, so that the code under test cannot swallow it.
                pytest.fail(
                    "an unmarked test starts a process: mark it with pytest.mark.process"
                    " (or spark, or browser)"
                )
            return start(*arguments, **options)

        return checked
