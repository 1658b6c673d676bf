"""`waypost breakers` and the breakers in `waypost stats`: a data directory and a served relay."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import fill, in_relay
from tests.cli.serve_process import ServeProcess, serving
from waypost import CircuitBreakerConfig, Relay
from waypost.client.http import HttpClient, Role, Token
from waypost.wire.http_bodies import CountResponse, NackRequest

FAIL_ONCE = CircuitBreakerConfig(failure_threshold=1)


async def open_breaker(relay: Relay) -> None:
    relay.register_endpoint("agent.a")
    await relay.publish("agent.a", 1, sender="agent.b")
    for one in await relay.lease("agent.a"):
        await relay.nack("agent.a", one.id)


def test_without_a_running_relay_all_breakers_are_closed(waypost: CommandLine) -> None:
    in_relay(waypost.data, open_breaker, circuit_breaker=FAIL_ONCE)
    assert waypost.json("breakers", "list") == {"breakers": {}}
    assert waypost("breakers", "list").stdout == "All circuit breakers are closed.\n"
    assert waypost.json("stats")["breakers"] == {}
    nothing = waypost("breakers", "reset", "agent.a", exits=1).stderr
    assert "no relay is running" in nothing
    assert "starts with all of them closed" in nothing


def test_the_journal_of_a_running_relay_shows_its_open_breakers(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        await open_breaker(relay)
        await relay.sync()
        found = waypost.json("breakers", "list")["breakers"]
        assert found["agent.a"]["state"] == "OPEN"
        assert "OPEN" in waypost("breakers", "list").stdout
        stats = waypost("stats").stdout
        assert "The circuit breaker of agent.a is open" in stats
        running = waypost("breakers", "reset", "agent.a", exits=1).stderr
        assert "--url" in running
        await relay.seal_journal()
        await relay.reset_breaker("agent.a")
        assert waypost.json("breakers", "list") == {"breakers": {}}

    in_relay(waypost.data, act, circuit_breaker=FAIL_ONCE)


def test_full_mailboxes_are_findings(waypost: CommandLine) -> None:
    waypost.data.mkdir(mode=0o700)
    limits = {"reliability": {"backpressure": {"maxMailboxSize": 6}}}
    (waypost.data / "config.json").write_text(json.dumps(limits))
    fill(waypost.data)
    [finding] = waypost.json("stats")["findings"]
    assert (finding["kind"], finding["subject"]) == ("inbox_full", "agent.a")
    assert finding["command"] == ["inbox", "agent.a"]
    assert finding["text"] in waypost("stats").stdout


def test_an_unused_directory_has_no_breakers(waypost: CommandLine) -> None:
    waypost("breakers", "list", exits=1)
    waypost("breakers", "reset", "agent.a", exits=1)
    assert not waypost.data.exists()


def fail(relay: ServeProcess) -> None:
    """Send five messages, and return all of them as failed."""
    operator, user = relay.operator(), relay.user()
    for number in range(5):
        user("send", "agent.a", str(number))
    token = Token(Role.OPERATOR, Path(relay.operator_token_file).read_text().strip())
    api = HttpClient(relay.url)
    leased: Any = api.get("/v1/inbox/agent.a", dict, token=token)
    ids = [one["id"] for one in leased["messages"]]
    api.post("/v1/inbox/agent.a/nack", NackRequest(ids=ids), CountResponse, token=token)
    api.close()
    assert operator.json("breakers", "list")["breakers"]["agent.a"]["consecutive_failures"] == 5


@pytest.mark.process
def test_a_breaker_of_a_served_relay_opens_is_shown_and_reset(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user, operator = relay.user(), relay.operator()
        fail(relay)
        assert "circuit_open" in user("send", "agent.a", "6", exits=3).stdout
        stats = operator.json("stats")
        assert stats["breakers"]["agent.a"]["state"] == "OPEN"
        [finding] = stats["findings"]
        assert finding["kind"] == "breaker_open"
        assert "OPEN" in operator("breakers", "list").stdout
        user("breakers", "reset", "agent.a", exits=1)
        done = operator("breakers", "reset", "agent.a").stdout
        assert done == "agent.a: the breaker is closed; it was OPEN.\n"
        user("send", "agent.a", "6")
        assert operator.json("breakers", "reset", "agent.a")["before"] == "CLOSED"
        operator("breakers", "reset", "agent.nobody", exits=1)
