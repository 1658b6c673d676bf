"""`waypost dead-letters`."""

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import LARGE, body_file, bury, change_byte, in_relay
from waypost import Relay


def ids(waypost: CommandLine, *arguments: str) -> list[str]:
    letters = waypost.json("dead-letters", "list", *arguments)["dead_letters"]
    return [letter["envelope"]["id"] for letter in letters]


def test_dead_letters_are_listed_with_their_reason_oldest_first(waypost: CommandLine) -> None:
    bury(waypost.data, "one", "two")
    first, second = waypost.json("dead-letters", "list")["dead_letters"]
    assert (first["envelope"]["id"], second["envelope"]["id"]) == ("one", "two")
    assert first["envelope"]["payload"] == {"id": "one"}
    assert first["reason"] == "handler failed: ValueError: no luck today"
    assert (first["endpoint"], first["envelope"]["sender"]) == ("agent.a", "agent.b")
    text = waypost("dead-letters", "list").stdout
    assert text.index("one") < text.index("two")
    assert "handler failed: ValueError: no luck today" in text
    assert text.endswith("2 dead letters.\n")


def test_they_can_be_listed_for_one_endpoint(waypost: CommandLine) -> None:
    bury(waypost.data, "one")
    bury(waypost.data, "two", to="agent.c")
    assert ids(waypost, "agent.c") == ["two"]
    assert ids(waypost, "agent.nobody") == []
    assert "invalid subject" in waypost("dead-letters", "list", "a..b", exits=2).stderr


def test_they_can_be_counted_by_endpoint_and_reason(waypost: CommandLine) -> None:
    bury(waypost.data, "one", "two")
    bury(waypost.data, "three", reason="other trouble")
    larger, smaller = waypost.json("dead-letters", "list", "--group")["groups"]
    assert (larger["count"], larger["ids"]) == (2, ["one", "two"])
    assert (smaller["count"], smaller["reason"]) == (1, "handler failed: ValueError: other trouble")
    assert "3 dead letters in 2 groups." in waypost("dead-letters", "list", "--group").stdout


def test_none_is_said_in_words(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    assert waypost("dead-letters", "list").stdout == "0 dead letters.\n"


def test_one_whose_payload_is_damaged_is_listed_without_it(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        spent = {"call_budget_remaining": 0}
        await relay.publish("agent.a", LARGE, sender="agent.b", message_id="large", budget=spent)

    in_relay(waypost.data, act)
    change_byte(body_file(waypost.data), 10)
    [letter] = waypost.json("dead-letters", "list")["dead_letters"]
    assert letter["envelope"]["payload"] is None
    assert "payload lost" in letter["reason"]


def test_redriven_letters_wait_again(waypost: CommandLine) -> None:
    bury(waypost.data, "one", "two", "three")
    assert waypost.json("dead-letters", "redrive", "one", "three") == {
        "redriven": 2,
        "not_redriven": [],
    }
    assert [one["id"] for one in waypost.json("inbox", "agent.a")["messages"]] == ["one", "three"]
    assert ids(waypost) == ["two"]


def test_all_letters_of_an_endpoint_can_be_redriven(waypost: CommandLine) -> None:
    bury(waypost.data, "one", "two")
    bury(waypost.data, "other", to="agent.c")
    result = waypost("dead-letters", "redrive", "--all", "--subject", "agent.a")
    assert result.stdout == "2 dead letters redriven.\n"
    assert ids(waypost) == ["other"]
    waypost("dead-letters", "redrive", "--all")
    assert ids(waypost) == []


def test_an_id_that_is_no_dead_letter_is_named_and_exits_with_1(waypost: CommandLine) -> None:
    bury(waypost.data, "one")
    result = waypost("dead-letters", "redrive", "one", "nonsense", exits=1)
    assert result.stdout == "1 dead letter redriven.\n"
    assert "nonsense" in result.stderr
    answer = waypost.json("dead-letters", "redrive", "nonsense", exits=1)
    assert answer == {"redriven": 0, "not_redriven": ["nonsense"]}


@pytest.mark.parametrize("arguments", [(), ("one", "--all")])
def test_redrive_wants_ids_or_all_and_not_both(
    waypost: CommandLine, arguments: tuple[str, ...]
) -> None:
    bury(waypost.data, "one")
    assert "--all" in waypost("dead-letters", "redrive", *arguments, exits=2).stderr
    assert ids(waypost) == ["one"]


def test_purging_asks_first_and_takes_no_for_an_answer(waypost: CommandLine) -> None:
    bury(waypost.data, "one", "two")
    result = waypost("dead-letters", "purge", typed="n\n", exits=1)
    assert "Delete 2 dead letters permanently?" in result.stderr
    assert len(ids(waypost)) == 2
    waypost("dead-letters", "purge", typed="", exits=1)
    assert len(ids(waypost)) == 2
    assert "2 dead letters purged." in waypost("dead-letters", "purge", typed="y\n").stdout
    assert ids(waypost) == []


def test_with_yes_and_json_there_is_only_json_on_stdout(waypost: CommandLine) -> None:
    bury(waypost.data, "one")
    assert waypost.json("dead-letters", "purge", "--yes") == {"purged": 1}
    assert waypost.json("dead-letters", "purge") == {"purged": 0}


def test_the_question_does_not_spoil_json(waypost: CommandLine) -> None:
    bury(waypost.data, "one")
    assert waypost.json("dead-letters", "purge", typed="y\n") == {"purged": 1}


def test_only_old_letters_of_one_endpoint_are_purged(waypost: CommandLine) -> None:
    bury(waypost.data, "one")
    bury(waypost.data, "two", to="agent.c")
    assert waypost.json("dead-letters", "purge", "--older-than", "1h") == {"purged": 0}
    young = ("--older-than", "0s", "--subject", "agent.c", "--yes")
    assert waypost.json("dead-letters", "purge", *young) == {"purged": 1}
    assert ids(waypost) == ["one"]


@pytest.mark.parametrize("age", ["7", "d", "7 days", "-1d", "1.5h", "", "99999999999w"])
def test_an_age_that_is_none_is_a_usage_error(waypost: CommandLine, age: str) -> None:
    bury(waypost.data, "one")
    waypost("dead-letters", "purge", "--yes", f"--older-than={age}", exits=2)
    assert ids(waypost) == ["one"]
