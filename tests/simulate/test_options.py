"""Invalid options are rejected before anything is written."""

from pathlib import Path
from typing import Any

import pytest

from tests.simulate.journals import publishes, run
from waypost.policy.errors import InvalidInput
from waypost.relay.errors import DataDirUnusable
from waypost.simulate import SimulationOptions, simulate


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"messages": 0}, "messages must be 1 or more, not 0"),
        ({"agents": 23}, "agents must be 24 or more, not 23"),
        ({"days": 0.2}, "days must be 0.25 to 366, not 0.2"),
        ({"days": float("nan")}, "days must be"),
        ({"scenario": "party"}, "unknown scenario 'party'; choose one of: mixed, conversations,"),
    ],
)
def test_invalid_options_are_rejected(
    tmp_path: Path, fields: dict[str, Any], complaint: str
) -> None:
    options = SimulationOptions(**{"messages": 10, "out": tmp_path / "data", **fields})
    with pytest.raises(InvalidInput, match=complaint):
        simulate(options)
    assert not (tmp_path / "data").exists()


def test_a_directory_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="not an empty directory"):
        simulate(SimulationOptions(messages=10, out=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_instead_of_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="not an empty directory"):
        simulate(SimulationOptions(messages=10, out=tmp_path / "file"))


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirUnusable, match="cannot use"):
        simulate(SimulationOptions(messages=10, out=tmp_path / "file" / "data"))


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    run(tmp_path, messages=10)
    assert publishes(tmp_path) == 10


def test_the_fewest_agents_and_the_shortest_time_are_enough(tmp_path: Path) -> None:
    run(tmp_path / "data", messages=3000, agents=24, days=0.25)
    assert publishes(tmp_path / "data") == 3000
