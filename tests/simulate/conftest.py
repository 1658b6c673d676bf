"""One mixed simulation, shared by all tests that only read it."""

from pathlib import Path

import pytest

from tests.simulate.journals import run
from waypost.simulate import Summary


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """A mixed run of 3,000 messages, and its summary."""
    data = tmp_path_factory.mktemp("simulated") / "data"
    return data, run(data)


@pytest.fixture(scope="session")
def mixed(simulated: tuple[Path, Summary]) -> Path:
    """The data directory of a mixed run."""
    return simulated[0]
