"""The order of tests for `--dist worksteal`: no long test last, and one Spark session if possible.

Each worker begins with an equal, contiguous part of the tests, and takes over the end of another
worker's part when its own is done. Therefore:

Rule 1. Tests that share a Spark session begin the first part: one worker runs them.
Rule 2. Tests that start Spark in other processes, and other tests marked `slow`, begin the second.
        In both parts the slow ones come first.
Rule 3. All other tests fill the parts up. They are short, so all workers end at the same time.
"""

import pytest


def scheduled(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return `items` in the order in which `workers` should run them."""
    in_session: list[pytest.Item] = []
    in_processes: list[pytest.Item] = []
    short: list[pytest.Item] = []
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            in_session.append(item)
        elif item.get_closest_marker("spark") or item.get_closest_marker("slow"):
            in_processes.append(item)
        else:
            short.append(item)
    in_session.sort(key=_is_short)
    in_processes.sort(key=_is_short)
    room = max(0, len(items) // workers - len(in_session)) if workers > 1 else 0
    return [*in_session, *short[:room], *in_processes, *short[room:]]


def _is_short(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None
