"""Several relays at once: each is one that could have been made alone."""

from pathlib import Path

import pytest

from tests.simulate.journals import decisions, run
from waypost import InvalidInput
from waypost.simulate import SimulationOptions, simulate_parallel


@pytest.mark.process
def test_each_relay_is_as_it_would_be_alone(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    options = SimulationOptions(messages=700, out=tmp_path / "both", seed=7)
    simulate_parallel(options, 2, lambda done, total: heard.append((done, total)))
    run(tmp_path / "alone", messages=350, seed=8)
    assert decisions(tmp_path / "both" / "relay-2") == decisions(tmp_path / "alone")
    assert heard == [(350, 700), (700, 700)]


@pytest.mark.parametrize("relays", [0, 4])
def test_every_relay_has_a_message_or_there_are_none(tmp_path: Path, relays: int) -> None:
    options = SimulationOptions(messages=3, out=tmp_path / "data")
    with pytest.raises(InvalidInput, match="relays must be 1 to the number of messages"):
        simulate_parallel(options, relays)
    assert not (tmp_path / "data").exists()
