"""The seeded simulations: some seeds here; `python -m` runs any number of them."""

import pytest

from tests.cluster import partitions_simulation
from tests.cluster.simulation import run_seed

SEEDS, PER_TEST = 150, 25
PARTITIONS_SEEDS, PARTITIONS_PER_TEST = 50, 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_no_seed_loses_doubles_or_reorders_what_was_returned(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        run_seed(seed)


LOST_SEAL = 1179
"""The log lost a record that only seals: its node went on in the next segment."""
SEALED_BEFORE_UNCONFIRMED = 1441
"""The log sealed a segment in which a follower had an unconfirmed batch."""
SEALED_WHEN_APPENDED_AGAIN = 7631
"""The log lost its last record and got it again, sealed, at the position that a follower had."""
EXPIRED_BEFORE_ACK = 1931
"""Messages expired while their lease waited for the log, so that the acknowledgement found none."""


@pytest.mark.parametrize(
    "seed",
    [
        LOST_SEAL,
        SEALED_BEFORE_UNCONFIRMED,
        SEALED_WHEN_APPENDED_AGAIN,
        EXPIRED_BEFORE_ACK,
    ],
)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    run_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PARTITIONS_SEEDS, PARTITIONS_PER_TEST))
def test_no_seed_exceeds_a_limit_or_decides_twice_across_partitions(first: int) -> None:
    for seed in range(first, first + PARTITIONS_PER_TEST):
        partitions_simulation.run_seed(seed)


LOST_PAYLOAD = 43
"""A node appended a forwarded message again, without its large payload."""
FENCED_OUTBOX = 12
"""The simulation waited for the outbox of a relay that was fenced and had not noticed."""


@pytest.mark.parametrize("seed", [LOST_PAYLOAD, FENCED_OUTBOX])
def test_a_seed_of_several_partitions_that_failed_once_holds(seed: int) -> None:
    partitions_simulation.run_seed(seed)
