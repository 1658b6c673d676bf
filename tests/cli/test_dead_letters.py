"""`waypost dead-letters`."""

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import LARGE, add_dead_letters, body_file, change_byte, in_relay
from waypost import Relay


def ids(waypost: CommandLine, *arguments: str) -> list[str]:
    found = waypost.json("dead-letters", "list", *arguments)["dead_letters"]
    return [one["envelope"]["id"] for one in found]


def test_dead_letters_are_listed_with_their_reason_oldest_first(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one", "two")
    first, second = waypost.json("dead-letters", "list")["dead_letters"]
    assert (first["envelope"]["id"], second["envelope"]["id"]) == ("one", "two")
    assert first["envelope"]["payload"] == {"id": "one"}
    assert first["reason"] == "handler failed: ValueError: no luck today"
    assert (first["endpoint"], first["envelope"]["sender"]) == ("agent.a", "agent.b")
    text = waypost("dead-letters", "list").stdout
    assert text.index("one") < text.index("two")
    assert "handler failed: ValueError: no luck today" in text
    assert text.endswith("2 dead letters.\n")


def test_dead_letters_can_be_listed_for_one_endpoint(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    add_dead_letters(waypost.data, "two", to="agent.c")
    assert ids(waypost, "agent.c") == ["two"]
    assert ids(waypost, "agent.unknown") == []
    assert "invalid subject" in waypost("dead-letters", "list", "a..b", exits=2).stderr


def test_dead_letters_can_be_counted_by_endpoint_and_reason(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    add_dead_letters(waypost.data, "two", reason="other trouble")
    add_dead_letters(waypost.data, "three", to="agent.c")
    larger, smaller = waypost.json("dead-letters", "list", "--group")["groups"]
    assert (larger["count"], larger["ids"]) == (2, ["one", "two"])
    assert (larger["endpoint"], larger["reason"]) == ("agent.a", "handler failed")
    assert (smaller["endpoint"], smaller["count"]) == ("agent.c", 1)
    assert "3 dead letters in 2 groups." in waypost("dead-letters", "list", "--group").stdout


def test_an_empty_list_prints_its_count(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    assert waypost("dead-letters", "list").stdout == "0 dead letters.\n"


def test_a_dead_letter_with_a_damaged_payload_is_listed_without_it(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        spent = {"call_budget_remaining": 0}
        await relay.publish("agent.a", LARGE, sender="agent.b", message_id="large", budget=spent)

    in_relay(waypost.data, act)
    change_byte(body_file(waypost.data), 10)
    [dead] = waypost.json("dead-letters", "list")["dead_letters"]
    assert dead["envelope"]["payload"] is None
    assert "payload lost" in dead["reason"]


def test_redriven_messages_are_pending_again(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one", "two", "three")
    assert waypost.json("dead-letters", "redrive", "one", "three") == {
        "redriven": 2,
        "not_redriven": [],
    }
    assert [one["id"] for one in waypost.json("inbox", "agent.a")["messages"]] == ["one", "three"]
    assert ids(waypost) == ["two"]


def test_all_dead_letters_at_an_endpoint_can_be_redriven(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one", "two")
    add_dead_letters(waypost.data, "other", to="agent.c")
    result = waypost("dead-letters", "redrive", "--all", "--subject", "agent.a")
    assert result.stdout == "2 dead letters redriven.\n"
    assert ids(waypost) == ["other"]
    waypost("dead-letters", "redrive", "--all")
    assert ids(waypost) == []


def test_an_unknown_id_is_reported_and_exits_with_1(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    result = waypost("dead-letters", "redrive", "one", "nonsense", exits=1)
    assert result.stdout == "1 dead letter redriven.\n"
    assert "nonsense" in result.stderr
    answer = waypost.json("dead-letters", "redrive", "nonsense", exits=1)
    assert answer == {"redriven": 0, "not_redriven": ["nonsense"]}


@pytest.mark.parametrize("arguments", [(), ("one", "--all")])
def test_redrive_needs_ids_or_all_but_not_both(
    waypost: CommandLine, arguments: tuple[str, ...]
) -> None:
    add_dead_letters(waypost.data, "one")
    assert "--all" in waypost("dead-letters", "redrive", *arguments, exits=2).stderr
    assert ids(waypost) == ["one"]


def test_purge_asks_for_confirmation(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one", "two")
    result = waypost("dead-letters", "purge", stdin="n\n", exits=1)
    assert "Delete 2 dead letters permanently?" in result.stderr
    assert len(ids(waypost)) == 2
    waypost("dead-letters", "purge", stdin="", exits=1)
    assert len(ids(waypost)) == 2
    assert "2 dead letters purged." in waypost("dead-letters", "purge", stdin="y\n").stdout
    assert ids(waypost) == []


def test_with_yes_and_json_there_is_only_json_on_stdout(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    assert waypost.json("dead-letters", "purge", "--yes") == {"purged": 1}
    assert waypost.json("dead-letters", "purge") == {"purged": 0}


def test_the_confirmation_prompt_is_not_on_stdout(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    assert waypost.json("dead-letters", "purge", stdin="y\n") == {"purged": 1}


def test_purge_is_limited_by_age_and_endpoint(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "one")
    add_dead_letters(waypost.data, "two", to="agent.c")
    assert waypost.json("dead-letters", "purge", "--older-than", "1h") == {"purged": 0}
    young = ("--older-than", "0s", "--subject", "agent.c", "--yes")
    assert waypost.json("dead-letters", "purge", *young) == {"purged": 1}
    assert ids(waypost) == ["one"]


@pytest.mark.parametrize("age", ["7", "d", "7 days", "-1d", "1.5h", "", "99999999999w"])
def test_an_invalid_age_is_a_usage_error(waypost: CommandLine, age: str) -> None:
    add_dead_letters(waypost.data, "one")
    waypost("dead-letters", "purge", "--yes", f"--older-than={age}", exits=2)
    assert ids(waypost) == ["one"]
