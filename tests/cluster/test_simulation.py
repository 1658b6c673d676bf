"""The seeded simulation: 200 seeds here; `python -m tests.cluster.simulation` runs any number."""

import pytest

from tests.cluster.simulation import run_seed

SEEDS = 200
PER_TEST = 25


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_no_seed_loses_doubles_or_reorders_what_was_returned(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        run_seed(seed)
