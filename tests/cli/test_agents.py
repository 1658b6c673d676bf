"""`waypost agents`, and stuck agents in `waypost stats`: a served relay, and a data directory."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serve_process import serving
from tests.eventually import eventually_blocking
from waypost.client import Identity, blocking


def test_a_data_directory_has_no_connected_agents(waypost: CommandLine) -> None:
    for arguments in (("list",), ("disconnect", "agent.a"), ("release", "agent.a")):
        assert "--url" in waypost("agents", *arguments, exits=1).stderr


@pytest.mark.process
def test_a_stuck_agent_is_shown_released_and_disconnected(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "config.json").write_text(json.dumps({"leaseTimeoutMs": 200}))
    with serving(tmp_path) as relay:
        user, operator = relay.user(), relay.operator()
        assert operator("agents", "list").stdout == "No agent is connected by WebSocket.\n"
        with blocking.connect(relay.url, Identity.new("agent.a")) as agent:
            user("send", "agent.a", "1")
            message = agent.receive(60)
            eventually_blocking(lambda: operator.json("stats")["stuck"] == ["agent.a"])
            stats = operator("stats").stdout
            assert "1 agent connected, 1 of them stuck" in stats
            assert "agent.a is connected, but has acknowledged nothing for" in stats
            assert "Oldest" in stats
            assert "s ago" in operator("endpoints").stdout
            assert "stuck, " in operator("agents", "list").stdout
            message.ack()
            eventually_blocking(lambda: operator.json("stats")["stuck"] == [])
            user("send", "agent.a", "2")
            agent.receive(60)
            released = operator.json("agents", "release", "agent.a")
            assert released["subject"] == "agent.a"
            user("agents", "disconnect", "agent.a", exits=1)
            done = operator("agents", "disconnect", "agent.a").stdout
            assert done == "agent.a: disconnected.\n"
        eventually_blocking(lambda: operator.json("agents", "list")["agents"] == [])
        operator("agents", "disconnect", "agent.a", exits=1)
        operator("agents", "release", "agent.nobody", exits=1)
