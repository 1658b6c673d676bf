"""Relays simulated in parallel equal those simulated alone."""

from pathlib import Path

import pytest

from tests.simulate.journals import decisions, run
from waypost import InvalidInput
from waypost.simulate import SimulationOptions, simulate_parallel


@pytest.mark.process
def test_each_relay_equals_one_simulated_alone(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    options = SimulationOptions(messages=700, out=tmp_path / "both", seed=7)
    simulate_parallel(options, 2, lambda done, total: reported.append((done, total)))
    run(tmp_path / "alone", messages=350, seed=8)
    assert decisions(tmp_path / "both" / "relay-2") == decisions(tmp_path / "alone")
    assert reported == [(350, 700), (700, 700)]


@pytest.mark.parametrize("relays", [0, 4])
def test_there_are_no_more_relays_than_messages(tmp_path: Path, relays: int) -> None:
    options = SimulationOptions(messages=3, out=tmp_path / "data")
    with pytest.raises(InvalidInput, match="relays must be 1 to the number of messages"):
        simulate_parallel(options, relays)
    assert not (tmp_path / "data").exists()
