"""`waypost inbox` and `waypost explain`."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import (
    LARGE,
    add_dead_letters,
    body_file,
    change_byte,
    fill,
    in_relay,
    tree,
)
from waypost import Relay


def test_showing_an_inbox_changes_nothing(waypost: CommandLine) -> None:
    fill(waypost.data)
    before = tree(waypost.data)
    waypost("inbox", "agent.a")
    assert tree(waypost.data) == before


def test_pending_messages_are_shown_in_order_and_leased_ones_counted(waypost: CommandLine) -> None:
    fill(waypost.data)
    inbox = waypost.json("inbox", "agent.a")
    assert [one["id"] for one in inbox["messages"]] == ["small-2", "small-3", "small-4", "large"]
    assert (inbox["pending"], inbox["leased"], inbox["acknowledged"]) == (4, 2, False)


def test_limit_and_max_size_skip_other_messages(waypost: CommandLine) -> None:
    fill(waypost.data)
    few = waypost.json("inbox", "agent.a", "--limit", "2")
    assert [one["id"] for one in few["messages"]] == ["small-2", "small-3"]
    assert few["pending"] == 4
    small = waypost.json("inbox", "agent.a", "--max-size", "1000")
    assert "large" not in [one["id"] for one in small["messages"]]


def test_text_output_truncates_a_large_payload(waypost: CommandLine) -> None:
    fill(waypost.data)
    text = waypost("inbox", "agent.a").stdout
    assert '{"number":2}' in text
    assert "9,002 characters; --json shows all" in text.replace("\n  ", " ")
    assert len(text) < 2000
    assert waypost.json("inbox", "agent.a")["messages"][-1]["payload"] == LARGE


def test_control_characters_and_markup_in_a_message_are_escaped(
    waypost: CommandLine,
) -> None:
    nasty = '"\\u001b[31mred\\u009b2J [bold]loud[/bold] \\u202etxt"'
    waypost("send", "agent.a", nasty, "--sender", "agent.b", "--register")
    text = waypost("inbox", "agent.a").stdout
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert "[bold]loud[/bold]" in text


def test_with_ack_messages_are_printed_and_removed(waypost: CommandLine) -> None:
    fill(waypost.data)
    taken = waypost.json("inbox", "agent.a", "--ack", "--limit", "3")
    # Opening the directory returned the two leases to their queue positions.
    assert [one["id"] for one in taken["messages"]] == ["small-0", "small-1", "small-2"]
    assert (taken["acknowledged"], taken["pending"]) == (True, 3)
    left = waypost.json("inbox", "agent.a")["messages"]
    assert [one["id"] for one in left] == ["small-3", "small-4", "large"]
    assert "3 messages acknowledged, 0 pending" in waypost("inbox", "agent.a", "--ack").stdout


def test_an_empty_mailbox_prints_its_count(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    waypost("inbox", "agent.a", "--ack")
    assert waypost("inbox", "agent.a").stdout == "agent.a: 0 pending messages.\n"


def test_an_unknown_endpoint_is_an_error_with_a_hint(waypost: CommandLine) -> None:
    fill(waypost.data)
    for more in ((), ("--ack",)):
        result = waypost("inbox", "agent.unknown", *more, exits=1)
        assert "endpoint agent.unknown is not registered" in result.stderr
        assert "waypost endpoints" in result.stderr


def test_a_limit_out_of_range_is_a_usage_error(waypost: CommandLine) -> None:
    assert "--limit" in waypost("inbox", "agent.a", "--limit", "0", exits=2).stderr
    assert "--max-size" in waypost("inbox", "agent.a", "--max-size", "x", exits=2).stderr


def test_an_unreadable_message_does_not_hide_the_others(waypost: CommandLine) -> None:
    fill(waypost.data)
    change_byte(body_file(waypost.data), 10)
    inbox = waypost.json("inbox", "agent.a")
    assert len(inbox["messages"]) == 3
    [problem] = inbox["unreadable"]
    assert problem.startswith("large: payload of large damaged")
    assert "unreadable: large" in waypost("inbox", "agent.a").stdout


def test_the_hihistory_of_a_message_has_each_check_with_its_values(waypost: CommandLine) -> None:
    fill(waypost.data)
    text = waypost("explain", "small-0").stdout
    assert "rate limit passed: 0/100 in the sender's window" in text
    assert "backpressure passed: 0/1000 in the mailbox" in text
    assert "budget passed: hop 0 of 5, 10 calls left, expires 20" in text
    assert "agent.b -> agent.a: stored" in text
    assert "delivered, attempt 1, via lease" in text
    assert "agent.a: leased, not yet acknowledged." in text


def test_the_hihistory_as_json_has_every_step_in_order(waypost: CommandLine) -> None:
    fill(waypost.data)
    history = waypost.json("explain", "small-0")
    assert history["message_id"] == "small-0"
    assert [s["kind"] for s in history["steps"]] == [*["check"] * 4, "accepted", "leased"]
    assert set(history["steps"][0]) == {"at_us", "seq", "kind", "endpoint", "text"}


def test_a_rejected_check_ends_the_hihistory(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        spent = {"call_budget_remaining": 0}
        await relay.publish("agent.a", 1, sender="agent.b", message_id="broke", budget=spent)

    in_relay(waypost.data, act)
    text = waypost("explain", "broke").stdout
    assert "budget rejected: hop 0 of 5, 0 calls left" in text
    assert "agent.a: rejected, and kept as a dead letter." in text


def test_a_hihistory_of_several_endpoints_shows_each_status(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        relay.register_endpoint("agent.c")
        await relay.publish("agent.>", 1, sender="agent.b", message_id="both")
        await relay.ack("agent.c", [one.id for one in await relay.lease("agent.c")])

    in_relay(waypost.data, act)
    text = waypost("explain", "both").stdout
    assert "agent.a: pending." in text
    assert "agent.c: acknowledged." in text


def test_a_message_without_an_endpoint_has_a_hihistory(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--id", "lonely", exits=3)
    assert "lonely: no endpoint matched." in waypost("explain", "lonely").stdout


def test_the_hihistory_of_a_dead_letter_has_its_reason(waypost: CommandLine) -> None:
    add_dead_letters(waypost.data, "doomed", reason="no\nluck")
    text = waypost("explain", "doomed").stdout
    assert "dead letter: handler failed: ValueError: no\\nluck" in text
    assert "agent.a: dead letter." in text


def test_an_unknown_id_exits_with_1_and_a_hint(waypost: CommandLine) -> None:
    fill(waypost.data)
    result = waypost("explain", "unknown-id", exits=1)
    assert "no message unknown-id in the journal of" in result.stderr
    assert "--data-dir" in result.stderr


def test_an_invalid_id_is_an_input_error(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert "invalid message id" in waypost("explain", 'a"b', exits=2).stderr


def test_times_are_in_utc(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register", "--id", "timed")
    created = waypost.json("inbox", "agent.a")["messages"][0]["created_at"]
    shown = f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M:%S} UTC"
    assert waypost("explain", "timed").stdout.startswith(f"timed  {shown}")


@pytest.mark.process
def test_messages_that_could_not_be_printed_are_not_acknowledged(
    waypost: CommandLine, data: Path
) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "waypost", "inbox", "agent.a", "--ack", "--data-dir", str(data)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1
    assert waypost.json("inbox", "agent.a", "--ack")["messages"][0]["payload"] == 1


def test_the_sender_of_an_evicted_message_sees_which_one_it_was(waypost: CommandLine) -> None:
    waypost.data.mkdir(mode=0o700)
    small = {"qos": {"enabled": True, "inboxMaxBytes": 5000}}
    (waypost.data / "config.json").write_text(json.dumps(small))
    waypost("send", "agent.b", "1", "--sender", "agent.x", "--register")
    send = ("send", "agent.a", json.dumps("x" * 3000), "--sender", "agent.b", "--register")
    evicted = waypost.json(*send)["message_id"]
    waypost(*send)
    text = " ".join(waypost("inbox", "agent.b").stdout.split())
    assert f"your message {evicted} to agent.a was evicted unread" in text
