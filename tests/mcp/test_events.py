"""The events extension: hosts that know it open a stream, and get an event when messages arrive."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import Request, Result
from pydantic import BaseModel, ConfigDict

from tests.eventually import event_loop_turns, eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, connected
from tests.mcp.processes import environment, key_file
from waypost.client import Identity
from waypost.mcp import events
from waypost.mcp.connection import McpConnection
from waypost.mcp.server import build_server

EXTENSION = "io.modelcontextprotocol/events"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Anything(BaseModel):
    """Parameters of any shape."""

    model_config = ConfigDict(extra="allow")


class AnyResult(Result):
    """A result of any shape."""

    model_config = ConfigDict(extra="allow")


class EventHost(ClientExtension):
    """A host that knows the extension; `seen` has its notifications by kind."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.seen: dict[str, list[dict[str, Any]]] = {"active": [], "event": [], "heartbeat": []}

    def notifications(self) -> list[NotificationBinding[Any]]:
        return [self._binding(kind) for kind in self.seen]

    def _binding(self, kind: str) -> NotificationBinding[Any]:
        async def note(given: Anything) -> None:
            self.seen[kind].append(given.model_dump())

        method = f"notifications/events/{kind}"
        return NotificationBinding(method=method, params_type=Anything, handler=note)

    async def has(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        await eventually(lambda: len(self.seen[kind]) >= count, f"{count} of {kind}")
        return self.seen[kind]


async def ask(model: Model, method: str, **params: Any) -> dict[str, Any]:
    request = Request[dict[str, Any], str](method=method, params=params)
    found = await model.client.session.send_request(request, AnyResult)
    return found.model_dump()


@asynccontextmanager
async def streaming(model: Model, host: EventHost) -> AsyncIterator[None]:
    """Open a stream for the block, and cancel it afterwards."""
    stream = asyncio.create_task(ask(model, "events/stream", name="messages.waiting"))
    await host.has("active")
    yield
    stream.cancel()
    await asyncio.wait([stream])


@asynccontextmanager
async def serving_events(url: str, host: EventHost) -> AsyncIterator[tuple[Model, McpConnection]]:
    connection = McpConnection(url, Identity.new("agent.bob"))
    client = Client(build_server(connection, events=True), extensions=[host])
    async with connection, connected(client) as model:
        yield model, connection


@pytest.mark.process
async def test_a_host_with_a_stream_is_woken_and_answers(
    relay: ListeningRelay, ann: Model, tmp_path: Path
) -> None:
    key = key_file(tmp_path, "agent.bob")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "waypost", "mcp", "--events", "--key", str(key), "--url", relay.url],
        env=environment(tmp_path),
    )
    host = EventHost()
    async with connected(Client(stdio_client(parameters), extensions=[host])) as bob:
        assert EXTENSION in (bob.client.server_capabilities.extensions or {})
        [listed] = (await ask(bob, "events/list"))["events"]
        assert (listed["name"], listed["delivery"]) == ("messages.waiting", ["push"])
        async with streaming(bob, host):
            sent = await ann.send("agent.bob", "wake up")
            [event] = await host.has("event")
            assert await bob.read(wait_seconds=0) == [(sent, "wake up")]
            await bob.call_ok("relay_send", payload="awake", in_reply_to=sent)
            await bob.call_ok("relay_ack", ids=[sent])
    assert event["name"] == "messages.waiting"
    assert event["cursor"] is None
    assert (event["data"]["subject"], event["data"]["unread"]) == ("agent.bob", 1)
    assert set(event["data"]) == set(listed["payloadSchema"]["required"])
    assert "wake up" not in str(event)
    assert event["_meta"] == host.seen["active"][0]["_meta"]
    assert SUBSCRIPTION in event["_meta"]
    assert [text for _, text in await ann.read()] == ["awake"]


async def test_a_flood_of_messages_is_no_flood_of_events(relay: ListeningRelay, ann: Model) -> None:
    host = EventHost()
    async with serving_events(relay.url, host) as (bob, _), streaming(bob, host):
        await ann.send("agent.bob", "first")
        await host.has("event")
        for number in range(20):
            await ann.send("agent.bob", str(number))
        await eventually(lambda: relay.waiting("agent.bob") == 21)
        await event_loop_turns()
        assert len(host.seen["event"]) == 1
        assert len(await bob.read(wait_seconds=0)) == 21
        await ann.send("agent.bob", "after a call")
        await host.has("event", 2)


async def test_a_quiet_stream_has_heartbeats_and_ends_when_it_is_cancelled(
    relay: ListeningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    host = EventHost()
    async with serving_events(relay.url, host) as (bob, connection):
        async with streaming(bob, host):
            [beat, *_] = await host.has("heartbeat", 2)
            assert beat["cursor"] is None
            assert connection.is_watched
        await eventually(lambda: not connection.is_watched, "the end of the stream")


async def test_bad_requests_are_answered_with_what_to_do(relay: ListeningRelay) -> None:
    host = EventHost()
    async with serving_events(relay.url, host) as (bob, _):
        with pytest.raises(MCPError, match=r"subscribe to messages\.waiting"):
            await ask(bob, "events/stream", name="mail.arrived")
        with pytest.raises(MCPError, match="without a cursor"):
            await ask(bob, "events/list", cursor="2")
        streams = [
            asyncio.create_task(ask(bob, "events/stream", name="messages.waiting"))
            for _ in range(events.STREAMS_MAX)
        ]
        await host.has("active", events.STREAMS_MAX)
        with pytest.raises(MCPError, match="too many streams"):
            await ask(bob, "events/stream", name="messages.waiting")
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)


async def test_without_the_option_the_extension_is_not_offered(bob: Model) -> None:
    assert not bob.client.server_capabilities.extensions
    with pytest.raises(MCPError, match="Method not found"):
        await ask(bob, "events/list")
