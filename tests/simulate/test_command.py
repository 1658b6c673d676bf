"""`waypost simulate`."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.simulate.journals import publishes


@pytest.fixture
def waypost(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


def test_it_creates_a_directory_that_other_commands_read(waypost: CommandLine) -> None:
    waypost("simulate", "--messages", "300", "--out", str(waypost.data))
    assert publishes(waypost.data) == 300
    assert waypost.json("verify")["ok"]
    assert waypost.json("stats")["storage"] == "journal"


def test_it_prints_the_outcomes_of_the_messages(waypost: CommandLine) -> None:
    arguments = ("--messages", "600", "--scenario", "flood", "--seed", "3")
    shown = waypost("simulate", *arguments, "--out", str(waypost.data)).stdout
    assert "600 messages by 40 agents (flood, seed 3)" in shown
    assert "rejected rate_limited" in shown
    assert "The journal is sealed." in shown


def test_it_prints_the_same_as_json(waypost: CommandLine) -> None:
    arguments = ("--messages", "600", "--scenario", "flood", "--agents", "30", "--days", "1")
    output = waypost.json("simulate", *arguments, "--out", str(waypost.data))
    assert (output["messages"], output["agents"], output["scenario"]) == (600, 30, "flood")
    assert output["accepted"] + sum(output["rejected"].values()) == 600
    assert output["end"].startswith("2026-01-01T23:")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--messages", "0"), "messages must be 1 or more"),
        (("--messages", "9", "--scenario", "party"), "choose one of: mixed, conversations, flood,"),
        (("--messages", "9", "--agents", "1"), "agents must be 24 or more"),
    ],
)
def test_invalid_options_are_one_sentence(
    waypost: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    result = waypost("simulate", *arguments, "--out", str(waypost.data), exits=2)
    assert complaint in result.stderr
    assert result.stderr.startswith("waypost: ")
    assert not waypost.data.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give --messages N and --out DIR, or --events N and --lake DIR"),
        (("--messages", "9"), "give --messages N and --out DIR, or --events N and --lake DIR"),
        (("--events", "9"), "--events and --lake go together"),
        (("--lake", "l", "--messages", "9", "--out", "o"), "--events and --lake go together"),
        (("--events", "0", "--lake", "l"), "events must be 1 or more"),
        (("--events", "9", "--lake", "l", "--relays", "2"), "leave out --relays"),
    ],
)
def test_options_that_exclude_each_other_are_one_sentence(
    waypost: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    result = waypost("simulate", *arguments, exits=2)
    assert complaint in result.stderr
    assert not waypost.data.exists()


@pytest.mark.process
def test_several_relays_get_a_directory_each(waypost: CommandLine) -> None:
    arguments = ("--messages", "401", "--relays", "2", "--seed", "7")
    output = waypost.json("simulate", *arguments, "--out", str(waypost.data))
    assert output["messages"] == 401
    assert [(one["messages"], one["seed"]) for one in output["relays"]] == [(200, 7), (201, 8)]
    assert [publishes(waypost.data / f"relay-{one}") for one in (1, 2)] == [200, 201]


def test_a_directory_in_use_is_left_alone(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    result = waypost("simulate", "--messages", "9", "--out", str(waypost.data), exits=2)
    assert "not an empty directory" in result.stderr
    assert publishes(waypost.data) <= 1
