"""An authenticator on its own directory, with a manual clock."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waypost.server.identity.authenticator import Authenticator
from waypost.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reopen(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Authenticator]]:
    """Return a function that opens the authenticator of one directory; close all at the end."""
    opened: list[Authenticator] = []

    def open_() -> Authenticator:
        opened.append(Authenticator.open(tmp_path / "data", lambda: clock() // 1000))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


@pytest.fixture
def authenticator(reopen: Callable[[], Authenticator]) -> Authenticator:
    return reopen()
