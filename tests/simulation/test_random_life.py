"""Random lives of a relay: whatever happens in whatever order, memory is the journal.

A failing life is shrunk to its shortest form and printed as a program, with a blob for
`@reproduce_failure`.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.life import Life
from waypost import HousekeepingConfig


class LifeInFiles(Life):
    storage = "maildir"


class LifeOfAForgetfulJournal(Life):
    """Segments are dropped as soon as no message needs them."""

    drops_segments = True
    keep = HousekeepingConfig(
        segment_max_bytes=4_096,
        segment_max_age_ms=5_000,
        journal_retention_ms=12_000,
        duplicate_window_ms=15_000,
    )


@pytest.mark.parametrize("life", [Life, LifeInFiles, LifeOfAForgetfulJournal])
def test_a_relay_is_what_its_journal_adds_up_to(life: type[Life]) -> None:
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
