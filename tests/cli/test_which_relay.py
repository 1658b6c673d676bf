"""Which relay a verb works on: a directory, or one that is served."""

from pathlib import Path

import pytest

from tests.cli.conftest import WIDE
from tests.cli.served import Person

AWAY = "http://127.0.0.1:9"


def person(tmp_path: Path, **environment: str) -> Person:
    return Person("", tmp_path, **{**WIDE, **environment})


def test_a_directory_and_a_url_contradict_each_other(tmp_path: Path) -> None:
    given = ("--data-dir", str(tmp_path), "--url", AWAY)
    said = person(tmp_path)("endpoints", *given, exits=2).stderr
    assert "--data-dir and --url are both given" in said
    assert str(tmp_path) in said
    assert AWAY in said


def test_so_do_two_variables(tmp_path: Path) -> None:
    both = person(tmp_path, WAYPOST_DATA_DIR=str(tmp_path), WAYPOST_URL=AWAY)
    assert "WAYPOST_DATA_DIR and WAYPOST_URL" in both("endpoints", exits=2).stderr


def test_an_option_beats_the_environment(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    to_directory = person(tmp_path, WAYPOST_URL=AWAY)
    to_directory(*("send", "agent.a", "1", "--sender", "agent.b", "--register", "--data-dir", data))
    to_url = person(tmp_path, WAYPOST_DATA_DIR=data)
    assert AWAY in to_url("send", "agent.a", "1", "--url", AWAY, exits=1).stderr


@pytest.mark.parametrize("verb", ["verify", "rebuild"])
def test_what_works_on_files_turns_a_url_down(tmp_path: Path, verb: str) -> None:
    for result in (
        person(tmp_path)(verb, "--url", AWAY, exits=2),
        person(tmp_path, WAYPOST_URL=AWAY)(verb, exits=2),
    ):
        assert f"'waypost {verb}' works on local files" in result.stderr
        assert "--data-dir" in result.stderr


def test_what_works_on_files_minds_no_variable_when_it_has_a_directory(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    person(tmp_path)(
        "send", "agent.a", "1", "--sender", "agent.b", "--register", "--data-dir", data
    )
    assert person(tmp_path, WAYPOST_URL=AWAY).json("verify", "--data-dir", data)["ok"]
    assert person(tmp_path, WAYPOST_URL=AWAY, WAYPOST_DATA_DIR=data).json("verify")["ok"]


def test_a_directory_knows_no_anonymous_senders_and_nobody_to_wait_for(tmp_path: Path) -> None:
    given = ("--data-dir", str(tmp_path / "data"))
    somebody = person(tmp_path)
    assert "--sender" in somebody("send", "agent.a", "1", *given, exits=2).stderr
    waiting = somebody(
        *("send", "agent.a", "1", "--sender", "agent.b", "--wait", "1", *given), exits=2
    )
    assert "--wait needs a served relay" in waiting.stderr
    assert not (tmp_path / "data").exists()


def test_agents_look_for_the_relay_where_it_is_by_default(tmp_path: Path) -> None:
    somebody = person(tmp_path)
    assert "http://127.0.0.1:7171" in somebody("listen", "--help").stdout
    assert "http://127.0.0.1:7171" in somebody("request", "--help").stdout
