"""One build, and one environment per extra, shared by all tests."""

from collections.abc import Callable
from functools import cache

import pytest

from tests.packaging.distribution import Distribution, Installed


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return Distribution(tmp_path_factory.mktemp("distribution"))


@pytest.fixture(scope="session")
def installed(
    distribution: Distribution, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installed]:
    """Return the environment with an extra; "" is none."""

    @cache
    def install(extra: str) -> Installed:
        return distribution.install(tmp_path_factory.mktemp("environments") / "venv", extra)

    return install
