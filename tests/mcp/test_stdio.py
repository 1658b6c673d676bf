"""`waypost mcp` over stdin and stdout, started by a host program."""

import json
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, connected
from tests.mcp.processes import ended, environment, key_file, start

pytestmark = pytest.mark.process

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def test_a_host_program_can_exchange_messages_with_another_agent(
    relay: ListeningRelay, ann: Model, tmp_path: Path
) -> None:
    sent = await ann.send("agent.bob", "waiting for you")
    key = key_file(tmp_path, "agent.bob")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "waypost", "mcp", "--key", str(key), "--url", relay.url],
        env=environment(tmp_path),
    )
    with (tmp_path / "stderr").open("w") as errors:
        async with connected(Client(stdio_client(parameters, errors), mode="legacy")) as bob:
            assert await bob.read() == [(sent, "waiting for you")]
            await bob.call_ok("relay_send", payload="here I am", in_reply_to=sent)
            await bob.call_ok("relay_ack", ids=[sent])
    assert [text for _, text in await ann.read()] == ["here I am"]
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert (tmp_path / "stderr").read_text() == ""


def test_nothing_but_the_protocol_goes_to_stdout(tmp_path: Path) -> None:
    key = key_file(tmp_path, "agent.ann")
    process = start(tmp_path, "--key", str(key), "--url", "http://127.0.0.1:1")
    call = {"name": "relay_status", "arguments": {}}
    asked = [
        INITIALIZE,
        INITIALIZED,
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    for one in asked:
        process.stdin.write(json.dumps(one) + "\n")
        process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    code, rest, _ = ended(process)
    assert [one["id"] for one in answers] == [1, 2]
    assert "no relay answers" in answers[1]["result"]["content"][0]["text"]
    assert rest == ""
    assert code == 0
