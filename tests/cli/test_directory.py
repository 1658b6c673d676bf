"""Agents find each other with the command line and with the client, at a served relay."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serve_process import ServeProcess, User, serving
from tests.eventually import eventually_blocking
from waypost.client import AgentCard, ClientOptions, Identity, connect
from waypost.policy.errors import InvalidMessage

pytestmark = pytest.mark.process

CARD = AgentCard(description="Writes Python.", skills=("python", "review"), version="1.4")


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[ServeProcess]:
    with serving(tmp_path) as started:
        yield started


@pytest.fixture
def me(relay: ServeProcess) -> User:
    """A user with the keys of `agent.me`, at a relay that `agent.coder` was connected to."""

    async def introduce() -> None:
        options = ClientOptions(card=CARD)
        async with connect(relay.url, Identity.new("agent.coder"), options=options):
            pass

    asyncio.run(introduce())
    coder = ("agents", "show", "agent.coder")
    eventually_blocking(lambda: not relay.operator().json(*coder)["connected"])
    user = relay.user()
    user.create_keys("agent.me")
    return user


def test_an_agent_is_found_by_a_skill_of_its_card(me: User, relay: ServeProcess) -> None:
    find = ("agents", "list", "--skill")
    [found] = me.json(*find, "python", "--sender", "agent.me")["agents"]
    assert (found["subject"], found["skills"]) == ("agent.coder", ["python", "review"])
    shown = me(*find, "python", "--sender", "agent.me").stdout
    assert "Writes Python." in shown
    assert "1 agent with the skill python." in shown
    assert "0 agents with the skill cobol" in me(*find, "cobol", "--sender", "agent.me").stdout
    assert relay.operator().json(*find, "python")["agents"] == [found]
    everyone = me.json("agents", "list", "--sender", "agent.me")["agents"]
    assert [one["subject"] for one in everyone] == ["agent.coder", "agent.me"]


def test_an_agent_is_shown_with_its_key(me: User) -> None:
    shown = me("agents", "show", "agent.coder", "--sender", "agent.me").stdout
    key = me.json("agents", "show", "agent.coder", "--sender", "agent.me")["public_key"]
    for part in ("agent.coder", "seen ", "Writes Python.", "python, review", "1.4", key):
        assert part in shown
    unknown = me("agents", "show", "agent.codr", "--sender", "agent.me", exits=1).stderr
    assert "check the spelling" in unknown


def test_without_keys_or_token_the_error_says_what_to_give(me: User, tmp_path: Path) -> None:
    assert "operator's token" in me("agents", "list", "--skill", "python", exits=1).stderr
    missing = me("agents", "list", "--sender", "agent.nobody", exits=1).stderr
    assert "waypost keys new agent.nobody" in missing
    local = CommandLine(tmp_path / "other")
    for command in (("list", "--skill", "python"), ("show", "agent.coder")):
        assert "--url" in local("agents", *command, exits=1).stderr


def test_a_send_to_a_name_that_never_connected_says_so(me: User) -> None:
    for keys in ((), ("--sender", "agent.me")):
        sent = me("send", "agent.codr", "hello", *keys)
        assert "delivered to agent.codr" in sent.stdout
        assert "No agent has connected as agent.codr yet; did you mean agent.coder?" in sent.stdout
    assert "No agent" not in me("send", "agent.coder", "hello").stdout
    facts = me.json("send", "agent.codr", "hello")
    assert facts["never_connected"] == {"did_you_mean": "agent.coder"}
    assert me.json("send", "agent.coder", "hello")["never_connected"] is None


def test_the_client_learns_it_from_the_result(me: User, relay: ServeProcess) -> None:
    async def send() -> str:
        async with connect(relay.url, Identity.load(me.key_of("agent.me"))) as agent:
            sent = await agent.send("agent.codr", 1)
            assert sent.delivered_to == 1
            assert sent.never_connected
            assert not (await agent.send("agent.coder", 1)).never_connected
            return sent.never_connected.did_you_mean

    assert asyncio.run(send()) == "agent.coder"


def test_a_connection_without_a_card_leaves_it_as_it_is(relay: ServeProcess) -> None:
    identity = Identity.new("agent.coder")

    async def card_after(options: ClientOptions) -> list[str]:
        async with connect(relay.url, identity, options=options):
            pass
        shown = relay.operator().json("agents", "show", "agent.coder")
        return list(shown["skills"])

    assert asyncio.run(card_after(ClientOptions(card=CARD))) == ["python", "review"]
    assert asyncio.run(card_after(ClientOptions())) == ["python", "review"]
    assert asyncio.run(card_after(ClientOptions(card=AgentCard()))) == []


def test_a_card_survives_a_restart_and_a_rebuild(tmp_path: Path) -> None:
    async def introduce(url: str) -> None:
        options = ClientOptions(card=CARD)
        async with connect(url, Identity.new("agent.coder"), options=options):
            pass

    with serving(tmp_path) as relay:
        asyncio.run(introduce(relay.url))
        shown = relay.operator().json("agents", "show", "agent.coder")
    CommandLine(tmp_path / "data")("rebuild")
    with serving(tmp_path) as relay:
        again = relay.operator().json("agents", "show", "agent.coder")
    assert again == {**shown, "connected": False, "last_seen": None}
    assert again["skills"] == ["python", "review"]


@pytest.mark.parametrize(
    "fields",
    [
        {"skills": "python"},
        {"skills": ["Two Words"]},
        {"skills": ["x" * 33]},
        {"skills": ["a\x1b[2J"]},
        {"skills": ["s"] * 1000},
        {"description": "a\nb"},
        {"description": "\x1b]0;owned\x07"},
        {"description": "\u202egnp.exe"},
        {"description": "in\u200bvisible"},
        {"description": "\ud800"},
        {"description": "x" * 1001},
        {"version": "1\x00"},
        {"version": "x" * 5000},
    ],
)
def test_an_invalid_card_is_an_error_where_it_is_written_and_at_the_relay(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(InvalidMessage):
        AgentCard(**fields)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, AgentCard)


def test_a_closed_directory_says_whom_to_ask(tmp_path: Path) -> None:
    with serving(tmp_path, "--directory", "closed") as relay:
        user = relay.user()
        user.create_keys("agent.me")
        closed = user("agents", "list", "--sender", "agent.me", exits=1).stderr
        assert "is closed; ask its operator for names" in closed
        assert "No agent" not in user("send", "agent.codr", "hello").stdout
    wrong = User("", tmp_path)("serve", "--directory", "opne", exits=2).stderr
    assert "contacts" in wrong
