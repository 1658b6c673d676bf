"""The guard of a model's requests: its limits, its state, and its reset."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, connected
from tests.mcp.processes import environment, key_file
from waypost import MessagingGuard, MessagingGuardConfig

NewModel = Callable[..., Any]
ASK = {"subject": "agent.bob", "payload": "there?", "timeout_seconds": 0.05}


async def test_the_rejection_states_the_default_limit_and_its_variable(ann: Model) -> None:
    ann_asks = {**ASK, "timeout_seconds": 0.01}
    for number in range(10):  # another recipient each time: no circuit opens
        await ann.call_error("relay_send_and_wait", **{**ann_asks, "subject": f"agent.b{number}"})
    output = await ann.call_error("relay_send_and_wait", **ann_asks)
    assert "Not sent (rate_limited: at most 10 requests of one agent in 60 s)" in output
    assert "AGENT_RATE_LIMIT_PER_MIN" in output


async def test_the_status_shows_the_guard(new_model: NewModel) -> None:
    guard = MessagingGuard(MessagingGuardConfig(failure_threshold=1))
    async with new_model("agent.ann", guard=guard) as ann:
        await ann.call_error("relay_send_and_wait", **ASK)
        await ann.call_error("relay_send_and_wait", **ASK)
        facts = (await ann.facts("relay_status"))["guard"]
        output = await ann.call_ok("relay_status")
    assert facts == {
        "requests": 1,
        "requests_max": 10,
        "window_seconds": 60,
        "circuits": {"agent.bob": "OPEN"},
        "counters": {
            "circuit_breaker_transitions": 1,
            "circuit_open_rejections": 1,
            "agent_rate_limit_rejections": 0,
        },
    }
    assert "1 of 10 requests in the last 60 seconds" in output
    assert 'circuit to "agent.bob": OPEN' in output


async def test_an_idle_guard_takes_no_line_of_the_status(ann: Model) -> None:
    assert "requests" not in await ann.call_ok("relay_status")


async def test_one_circuit_can_be_reset(new_model: NewModel) -> None:
    guard = MessagingGuard(MessagingGuardConfig(failure_threshold=1))
    async with new_model("agent.ann", guard=guard) as ann:
        for name in ("agent.bob", "agent.carol"):
            await ann.call_error("relay_send_and_wait", **{**ASK, "subject": name})
        output = await ann.call_ok("relay_reset_guard", subject="agent.bob")
        facts = (await ann.facts("relay_status"))["guard"]
        assert "No answer" in await ann.call_error("relay_send_and_wait", **ASK)
    assert "The circuit to agent.bob is closed" in output
    assert (facts["circuits"], facts["requests"]) == ({"agent.carol": "OPEN"}, 2)


async def test_the_whole_guard_can_be_reset(new_model: NewModel) -> None:
    guard = MessagingGuard(MessagingGuardConfig(failure_threshold=1))
    async with new_model("agent.ann", guard=guard) as ann:
        await ann.call_error("relay_send_and_wait", **ASK)
        facts = await ann.facts("relay_reset_guard")
    assert (facts["circuits"], facts["requests"]) == ({}, 0)
    assert facts["counters"]["circuit_breaker_transitions"] == 2


@pytest.mark.process
async def test_the_program_reads_the_limits_from_its_environment(
    relay: ListeningRelay, tmp_path: Path
) -> None:
    variables = {"AGENT_RATE_LIMIT_PER_MIN": "3", "AGENT_CB_FAILURE_THRESHOLD": "no"}
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "waypost", "mcp", "--key", str(key_file(tmp_path, "agent.ann"))],
        env={**environment(tmp_path), **variables, "WAYPOST_URL": relay.url},
    )
    with (tmp_path / "stderr").open("w") as errors:
        async with connected(Client(stdio_client(parameters, errors), mode="legacy")) as ann:
            guard = (await ann.facts("relay_status"))["guard"]
    assert guard["requests_max"] == 3
    assert (tmp_path / "stderr").read_text() == (
        "waypost: AGENT_CB_FAILURE_THRESHOLD='no' is not a whole number of 1 or more: 5 is used\n"
    )
