"""`waypost send`."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import in_relay
from waypost import AccessRule, Relay


def register(data: Path, *subjects: str) -> None:
    async def act(relay: Relay) -> None:
        for subject in subjects:
            relay.register_endpoint(subject)

    in_relay(data, act)


def test_a_message_goes_to_the_endpoint_that_is_registered_first(waypost: CommandLine) -> None:
    sent = waypost.json("send", "agent.a", '{"n": 1}', "--sender", "agent.b", "--register")
    assert sent["delivered_to"] == 1
    assert sent["rejected"] == []
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["id"] == sent["message_id"]
    assert message["payload"] == {"n": 1}
    assert message["sender"] == "agent.b"


def test_text_output_has_the_id_and_the_endpoint(waypost: CommandLine) -> None:
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--register")
    result = waypost(*send, "--id", "my-id")
    assert result.stdout == "my-id: delivered to agent.a\n"


def test_reply_to_and_id_are_part_of_the_message(waypost: CommandLine) -> None:
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--register")
    waypost(*send, "--id", "chosen", "--reply-to", "agent.b.answers")
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert (message["id"], message["reply_to"]) == ("chosen", "agent.b.answers")


def test_the_same_id_twice_is_stored_once(waypost: CommandLine) -> None:
    for _ in range(2):
        waypost("send", "agent.a", "1", "--sender", "agent.b", "--register", "--id", "chosen")
    assert len(waypost.json("inbox", "agent.a")["messages"]) == 1


@pytest.mark.parametrize(
    ("argument", "payload"),
    [
        ("[1, 2.50, null]", [1, 2.5, None]),
        ('"text in quotes"', "text in quotes"),
        ("text without quotes", "text without quotes"),
        ("", ""),
        ("12345678901234567890123", 12345678901234567890123),
        ("-2.5", -2.5),
    ],
)
def test_the_payload_is_json_or_else_a_string(
    waypost: CommandLine, argument: str, payload: object
) -> None:
    waypost("send", "agent.a", argument, "--sender", "agent.b", "--register")
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["payload"] == payload


@pytest.mark.parametrize("broken", ["{bad", "[urgent] call me", '"no end', ' {"a": 1,}'])
def test_a_payload_that_begins_like_json_must_be_json(waypost: CommandLine, broken: str) -> None:
    send = ("send", "agent.a", "--sender", "agent.b", "--register")
    error = waypost(*send, broken, exits=2).stderr
    assert "begins like JSON" in error
    assert "--text" in error, "what to do"
    assert "begins like JSON" in waypost(*send, "-", stdin=broken, exits=2).stderr
    waypost(*send, broken, "--text")
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["payload"] == broken


def test_with_text_even_json_is_sent_as_text(waypost: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text('{"a": 1}\n')
    send = ("send", "agent.a", "--sender", "agent.b", "--register", "--text")
    waypost(*send, "42")
    waypost(*send, f"@{tmp_path / 'note.txt'}")
    messages = waypost.json("inbox", "agent.a")["messages"]
    assert [one["payload"] for one in messages] == ["42", '{"a": 1}']


def test_the_payload_can_come_from_stdin(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "-", "--sender", "agent.b", "--register", stdin='{"a": [1]}\n')
    waypost("send", "agent.a", "-", "--sender", "agent.b", stdin="just text\n")
    messages = waypost.json("inbox", "agent.a")["messages"]
    assert [message["payload"] for message in messages] == [{"a": [1]}, "just text"]


def test_the_payload_can_come_from_a_file(waypost: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(json.dumps({"large": "x" * 10_000}))
    waypost("send", "agent.a", f"@{file}", "--sender", "agent.b", "--register")
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["payload"]["large"] == "x" * 10_000


def test_a_missing_file_is_an_input_error(waypost: CommandLine, tmp_path: Path) -> None:
    result = waypost("send", "agent.a", f"@{tmp_path}/no", "--sender", "agent.b", exits=2)
    assert "No such file" in result.stderr
    assert not waypost.data.exists()


def test_bytes_that_are_not_utf_8_are_an_input_error(waypost: CommandLine) -> None:
    result = waypost("send", "agent.a", "-", "--sender", "agent.b", stdin=b"\xff\xfe", exits=2)
    assert "base64" in result.stderr


def test_without_an_endpoint_it_exits_with_3_and_a_hint(
    waypost: CommandLine,
) -> None:
    result = waypost("send", "agent.a", "1", "--sender", "agent.b", exits=3)
    assert "No endpoint matches agent.a" in result.stdout
    assert "--register" in result.stdout
    sent = waypost.json("send", "agent.a", "1", "--sender", "agent.b", exits=3)
    assert (sent["delivered_to"], sent["rejected"]) == (0, [])


def test_a_pattern_reaches_every_matching_endpoint(waypost: CommandLine) -> None:
    register(waypost.data, "agent.a", "agent.c", "other.d")
    result = waypost("send", "agent.*", "1", "--sender", "agent.b")
    assert "delivered to 2 endpoints" in result.stdout


def test_a_pattern_without_a_match_gets_a_hint(waypost: CommandLine) -> None:
    result = waypost("send", "agent.>", "1", "--sender", "agent.b", exits=3)
    assert "waypost endpoints" in result.stdout


def test_a_pattern_cannot_be_registered(waypost: CommandLine) -> None:
    result = waypost("send", "agent.>", "1", "--sender", "agent.b", "--register", exits=2)
    assert "only allowed in patterns" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("agent..a", "1", "--sender", "agent.b"), "invalid subject 'agent..a'"),
        (("agent.a", "1", "--sender", "agent b"), "invalid subject 'agent b'"),
        (("agent.a", "1", "--sender", "agent.b", "--reply-to", "*"), "wildcard"),
        (("agent.a", "1", "--sender", "agent.b", "--id", "a/b"), "invalid message id"),
    ],
)
def test_bad_input_is_one_sentence_and_exits_with_2(
    waypost: CommandLine, arguments: tuple[str, ...], problem: str
) -> None:
    result = waypost("send", *arguments, exits=2)
    assert problem in result.stderr
    assert result.stderr.startswith("waypost: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_rate_limited_sender_gets_the_retry_time(waypost: CommandLine) -> None:
    register(waypost.data, "agent.a")
    limit = '{"reliability": {"rateLimit": {"maxPerWindow": 1}}}'
    (waypost.data / "config.json").write_text(limit)
    waypost("send", "agent.a", "1", "--sender", "agent.b")
    result = waypost("send", "agent.a", "2", "--sender", "agent.b", exits=3)
    assert "rejected: rate_limited" in result.stdout
    assert "send again in" in result.stdout
    sent = waypost.json("send", "agent.a", "3", "--sender", "agent.b", exits=3)
    assert sent["message_id"] == ""
    assert 0 < sent["retry_after_ms"] <= 60_000
    assert sent["rejected"][0]["reason"] == "rate_limited"


def test_a_full_mailbox_is_reported_with_advice(waypost: CommandLine) -> None:
    register(waypost.data, "agent.a", "agent.c")
    cap = '{"reliability": {"backpressure": {"maxMailboxSize": 1}}}'
    (waypost.data / "config.json").write_text(cap)
    waypost("send", "agent.a", "1", "--sender", "agent.b")
    sent = waypost.json("send", "agent.*", "2", "--sender", "agent.b")
    assert sent["delivered_to"] == 1
    [rejection] = sent["rejected"]
    assert (rejection["endpoint"], rejection["reason"]) == ("agent.a", "backpressure")
    assert "acknowledged" in rejection["advice"]


def test_a_sender_denied_by_rules_exits_with_3(waypost: CommandLine) -> None:
    async def forbid(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))

    in_relay(waypost.data, forbid)
    result = waypost("send", "agent.a", "1", "--sender", "agent.b", exits=3)
    assert "access_denied" in result.stdout
    assert "access-rules.json" in result.stdout


def test_a_directory_without_files_stays_without_files(waypost: CommandLine) -> None:
    async def register_one(relay: Relay) -> None:
        relay.register_endpoint("agent.a")

    in_relay(waypost.data, register_one, storage="journal")
    waypost("send", "agent.a", "1", "--sender", "agent.b")
    assert list((waypost.data / "mailboxes").iterdir()) == []
    assert waypost.json("stats")["storage"] == "journal"


def test_a_data_directory_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = CommandLine(tmp_path / "file" / "data")
    result = blocked("send", "agent.a", "1", "--sender", "agent.b", exits=1)
    assert "cannot use" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_message_can_expire_early(waypost: CommandLine) -> None:
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--register")
    result = waypost(*send, "--expires-in", "10m")
    assert "cut" not in result.stdout
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert 0 < message["budget"]["ttl"] - time.time() * 1000 <= 600_000


def test_a_time_to_live_that_is_cut_is_shown(waypost: CommandLine) -> None:
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--register", "--expires-in", "30d")
    cut = r"The relay cut the requested budget: expires in (1 h 0 min|59 min \d+ s)\n"
    assert re.search(cut, waypost(*send).stdout)
    sent = waypost.json(*send)
    assert list(sent["budget_cut"]) == ["ttl"]
    assert 0 < sent["budget_cut"]["ttl"] - time.time() * 1000 <= 3_600_000
