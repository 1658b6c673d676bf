"""`waypost mcp --http`: streamable HTTP on loopback."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from mcp import Client
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, connected
from tests.mcp.processes import key_file, start
from waypost import InvalidInput
from waypost.mcp.transport import BearerAuth, HttpAddress, parse_http

BODY = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@contextmanager
def serving(
    home: Path, relay_url: str, *more: str
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    key = str(key_file(home, "agent.bob"))
    process = start(home, "--key", key, "--url", relay_url, "--http", "127.0.0.1:0", *more)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+/mcp", process.stderr.readline())
        assert found is not None
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
async def test_models_in_several_programs_share_one_agent(
    relay: ListeningRelay, ann: Model, tmp_path: Path
) -> None:
    sent = await ann.send("agent.bob", "for either of you")
    with serving(tmp_path, relay.url) as (url, process):
        async with connected(Client(url)) as first, connected(Client(url, mode="legacy")) as second:
            assert await first.read() == [(sent, "for either of you")]
            await second.call_ok("relay_send", payload="I will", in_reply_to=sent)
            await second.call_ok("relay_ack", ids=[sent])
        assert [text for _, text in await ann.read()] == ["I will"]
        await eventually(lambda: relay.waiting("agent.bob") == 0)
        await check_foreign_origins_are_rejected(url)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0


async def check_foreign_origins_are_rejected(url: str) -> None:
    async with httpx.AsyncClient() as http:
        rebound = {**ACCEPT, "Host": "evil.example.com"}
        assert (await http.post(url, json=BODY, headers=rebound)).status_code == 421
        page = {**ACCEPT, "Origin": "https://evil.example.com"}
        assert (await http.post(url, json=BODY, headers=page)).status_code == 403


async def test_with_a_token_requests_without_it_are_rejected() -> None:
    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("welcome")(scope, receive, send)

    door = httpx.ASGITransport(BearerAuth(inside, "secret"))
    async with httpx.AsyncClient(transport=door, base_url="http://localhost") as http:
        for wrong in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "secret"}):
            answer = await http.get("/mcp", headers=wrong)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        right = await http.get("/mcp", headers={"Authorization": "Bearer secret"})
        assert right.text == "welcome"


def test_the_token_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("secret\n")
    assert parse_http("7272", token_file=file).token == "secret"
    file.write_text("\n")
    for bad in (file, tmp_path / "none"):
        with pytest.raises(InvalidInput, match="token"):
            parse_http("7272", token_file=bad)


def test_a_token_file_that_others_can_read_or_that_is_a_pipe_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match=f"chmod 600 {file}"):
        parse_http("7272", token_file=file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidInput, match="not a regular file"):
        parse_http("7272", token_file=tmp_path / "pipe")


def test_an_address_without_a_host_is_loopback() -> None:
    assert parse_http("7272") == HttpAddress("127.0.0.1", 7272)
    assert parse_http(":7272") == HttpAddress("127.0.0.1", 7272)
    assert parse_http("[::1]:0") == HttpAddress("::1", 0)
    assert parse_http("localhost:80") == HttpAddress("localhost", 80)


@pytest.mark.parametrize("text", ["", "host", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_without_a_port_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        parse_http(text)


@pytest.mark.parametrize("text", ["0.0.0.0:80", "10.0.0.1:80", "relay.example.com:80", "[::]:80"])
def test_an_address_beyond_loopback_needs_allowed_host_names(text: str) -> None:
    with pytest.raises(InvalidInput, match="--allow-host"):
        parse_http(text)
    assert parse_http(text, ["mcp.example.com"]).names == ("mcp.example.com",)
