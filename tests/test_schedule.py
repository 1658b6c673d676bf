"""The order in which workers run tests."""

from typing import Any, cast

import pytest

from tests.schedule import scheduled


class Item:
    """What the schedule looks at in a test."""

    def __init__(self, name: str, *markers: str, fixtures: tuple[str, ...] = ()) -> None:
        self.name = name
        self.fixturenames = fixtures
        self._markers = markers

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self._markers else None


SHORT = [Item(f"short-{number}") for number in range(12)]
SESSION = [Item("session", fixtures=("spark",)), Item("killed", "slow", fixtures=("spark",))]
PROCESSES = [Item("job", "spark"), Item("cluster", "spark", "slow")]


def names(items: list[Item], workers: int) -> list[str]:
    ordered = scheduled(cast("list[pytest.Item]", items), workers)
    return [item.name for item in ordered]


def test_each_half_begins_with_its_kind_of_spark_and_the_slow_tests_of_it() -> None:
    ordered = names([*SHORT[:6], *SESSION, *SHORT[6:], *PROCESSES], workers=2)
    assert ordered[:2] == ["killed", "session"]
    assert ordered[8:10] == ["cluster", "job"]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 40])
def test_every_test_is_scheduled_once_and_short_ones_keep_their_order(workers: int) -> None:
    items = [*PROCESSES, *SHORT, *SESSION]
    ordered = names(items, workers)
    assert sorted(ordered) == sorted(item.name for item in items)
    assert [name for name in ordered if "short" in name] == [item.name for item in SHORT]
