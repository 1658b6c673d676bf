"""`waypost thread`, and threads in the output of other commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import in_relay, tree
from tests.cli.serve_process import ServeProcess, User, serving
from waypost import Relay


async def talk(relay: Relay) -> None:
    """Let agent.a and agent.b exchange four messages, and leave one unread."""
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    await relay.publish("agent.b", 0, sender="agent.a", message_id="first", thread="release-42")
    for turn in range(1, 4):
        me = ("agent.a", "agent.b")[turn % 2]
        [message] = await relay.lease(me)
        await relay.publish(message.sender, turn, sender=me, parent=message)
        await relay.ack(me, message.id)


def test_a_thread_is_shown_in_order_with_outcomes(waypost: CommandLine) -> None:
    in_relay(waypost.data, talk)
    before = tree(waypost.data)
    text = waypost("thread", "release-42").stdout
    assert text.index("agent.a to agent.b") < text.index("agent.b answers agent.a")
    assert "acknowledged, 10 calls left" in text
    assert "pending, 7 calls left" in text
    assert text.rstrip().endswith("4 messages.")
    assert tree(waypost.data) == before


def test_a_thread_as_json_has_every_message(waypost: CommandLine) -> None:
    in_relay(waypost.data, talk)
    found = waypost.json("thread", "release-42")
    assert [one["calls_left"] for one in found["messages"]] == [10, 9, 8, 7]
    assert [one.get("answer", False) for one in found["messages"]] == [False, True, False, True]
    assert found["messages"][1]["parent"] == "first"


def test_explain_names_the_thread_of_a_message(waypost: CommandLine) -> None:
    in_relay(waypost.data, talk)
    text = waypost("explain", "first").stdout
    assert "The whole conversation: waypost thread release-42" in text
    answer = waypost.json("thread", "release-42")["messages"][1]["id"]
    assert "budget passed: an answer, back at hop 0 of 5, 9 calls left" in waypost(
        "explain", answer
    ).stdout.replace("\n", " ")


def test_an_unknown_thread_exits_with_1_and_a_hint(waypost: CommandLine) -> None:
    in_relay(waypost.data, talk)
    result = waypost("thread", "nothing-here", exits=1)
    assert "no thread nothing-here in the journal of" in result.stderr
    assert "invalid thread" in waypost("thread", 'a"b', exits=2).stderr


def test_the_sender_of_a_first_message_may_name_its_thread(waypost: CommandLine) -> None:
    sender = ("--sender", "agent.b", "--register")
    waypost("send", "agent.a", "1", *sender, "--thread", "mine")
    assert [one["thread"] for one in waypost.json("inbox", "agent.a")["messages"]] == ["mine"]
    assert (
        "invalid thread"
        in waypost("send", "agent.a", "1", *sender, "--thread", "a b", exits=2).stderr
    )


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.mark.process
def test_an_agent_reads_its_threads_at_a_served_relay(relay: ServeProcess, tmp_path: Path) -> None:
    user = User(relay.url, tmp_path)
    user.create_keys("agent.t1.web", "agent.t1.billing")
    recipient, sender = "agent.t1.billing", ("--sender", "agent.t1.web")
    sent = user.json("send", recipient, "1", *sender, "--thread", "refunds")
    received = user.json("listen", recipient, "--count", "1")
    assert received["thread"] == "refunds"
    key = ("--key", str(user.key_of("agent.t1.web")))
    found = user.json("thread", "refunds", *key)
    assert [one["id"] for one in found["messages"]] == [sent["message_id"]]
    assert user.json("explain", sent["message_id"], *key)["thread"] == "refunds"
