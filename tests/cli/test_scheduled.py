"""`waypost send --delay` and `--at`, and `waypost scheduled`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import in_relay, tree
from tests.cli.serve_process import ServeProcess, User, serving
from waypost import Relay

SENDER = ("--sender", "agent.b", "--register")


def test_a_message_with_a_delay_is_kept_and_listed(waypost: CommandLine) -> None:
    sent = waypost("send", "agent.a", "hello", *SENDER, "--delay", "30m", "--id", "late").stdout
    assert sent.strip() == "late: scheduled for agent.a"
    waypost("send", "agent.a", "hello", *SENDER, "--delay", "10m", "--id", "soon")
    assert waypost.json("inbox", "agent.a")["messages"] == []
    before = tree(waypost.data)
    found = waypost.json("scheduled", "list")["messages"]
    assert [one["id"] for one in found] == ["soon", "late"]
    due = datetime.fromisoformat(found[1]["deliver_at"])
    assert timedelta(minutes=29) < due - datetime.now(UTC) <= timedelta(minutes=30)
    text = waypost("scheduled", "list").stdout
    assert "2 scheduled messages." in text
    assert text.index("soon") < text.index("late")
    assert tree(waypost.data) == before
    assert "2 scheduled" in waypost("stats").stdout
    assert "scheduled" in waypost("explain", "late").stdout
    assert ", due at " in waypost("explain", "late").stdout.replace("\n", " ")


def test_a_message_may_name_its_instant_with_or_without_a_time_zone(waypost: CommandLine) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    waypost("send", "agent.a", "1", *SENDER, "--at", at.isoformat(), "--id", "utc")
    local = at.astimezone().replace(tzinfo=None).isoformat()
    waypost("send", "agent.a", "1", *SENDER, "--at", local, "--id", "local")
    for one in waypost.json("scheduled", "list")["messages"]:
        assert datetime.fromisoformat(one["deliver_at"]) == at


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--delay", "soon"), "is not a duration"),
        (("--at", "noon"), "is not an instant"),
        (("--delay", "1m", "--at", "2026-01-01T00:00"), "a delay or deliver_at, not both"),
        (("--delay", "8d"), "at most 604,800 seconds ahead"),
    ],
)
def test_an_invalid_time_exits_with_2(
    waypost: CommandLine, options: tuple[str, ...], text: str
) -> None:
    result = waypost("send", "agent.a", "1", *SENDER, *options, exits=2)
    assert text in result.stderr.replace("\n", " ")


def test_a_scheduled_message_is_cancelled_by_its_id(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", *SENDER, "--delay", "1h", "--id", "one")
    assert waypost("scheduled", "cancel", "one", "--sender", "agent.c", exits=1).stdout.startswith(
        "0 messages cancelled."
    )
    result = waypost("scheduled", "cancel", "one", "two", exits=1)
    assert result.stdout == "1 message cancelled.\n"
    assert "not found, or due already: two" in result.stderr
    assert waypost.json("scheduled", "list")["messages"] == []
    assert "cancelled" in waypost("explain", "one").stdout


def test_a_message_that_became_due_is_delivered_by_the_next_relay(waypost: CommandLine) -> None:
    waypost("send", "agent.a", '"past"', *SENDER, "--at", "2020-01-01T00:00Z")
    waypost("send", "agent.a", '"soon"', *SENDER, "--delay", "1s")

    async def wait(relay: Relay) -> None:
        await relay.wait_until(relay.now_us() + 1_000_000)

    in_relay(waypost.data, wait)
    consumed = waypost.json("inbox", "agent.a", "--ack")
    assert [one["payload"] for one in consumed["messages"]] == ["past", "soon"]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.mark.process
def test_an_agent_schedules_lists_and_cancels_at_a_served_relay(
    relay: ServeProcess, tmp_path: Path
) -> None:
    user = User(relay.url, tmp_path)
    user.create_keys("agent.web", "agent.billing", "agent.other")
    sender = ("--sender", "agent.web")
    sent = user.json("send", "agent.billing", "1", *sender, "--delay", "1h", "--expires-in", "5m")
    [shown] = user.json("scheduled", "list", *sender)["messages"]
    assert (shown["id"], shown["endpoint"]) == (sent["message_id"], "agent.billing")
    assert user.json("scheduled", "list", "--sender", "agent.other")["messages"] == []
    done = user.json("scheduled", "cancel", sent["message_id"], *sender)
    assert done == {"cancelled": [sent["message_id"]], "not_cancelled": []}
    user.json("send", "agent.billing", "2", *sender, "--delay", "1s")
    received = user.json("listen", "agent.billing", "--count", "1")
    assert received["payload"] == 2
