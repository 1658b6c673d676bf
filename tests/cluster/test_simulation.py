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


LOST_SEAL = 1179
"""The log lost a record that only seals: its node went on in the next segment."""
SEALED_BEFORE_UNCONFIRMED = 1441
"""The log sealed a segment in which a follower had an unconfirmed batch."""
EXPIRED_BEFORE_ACK = 1931
"""Messages expired while their lease waited for the log, so that the acknowledgement found none."""


@pytest.mark.parametrize("seed", [LOST_SEAL, SEALED_BEFORE_UNCONFIRMED, EXPIRED_BEFORE_ACK])
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    run_seed(seed)
