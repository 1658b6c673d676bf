"""Models that call the tools as an MCP host would, through the SDK's own client."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.types import CallToolResult, TextContent

from tests.eventually import eventually
from waypost.client import AgentCard, Identity, MessagingGuard
from waypost.mcp.connection import McpConnection
from waypost.mcp.server import build_server

FENCE = re.compile(
    r"^-----BEGIN UNTRUSTED (\w+)-----\n(.*?)\n-----END UNTRUSTED \1-----$", re.S | re.M
)
HEADING = re.compile(r"^Message (\S+) \| from (?:the agent named )?(\S+) \(([^)]*)\)", re.M)


class Model:
    """Calls tools and returns their output."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **given: Any) -> CallToolResult:
        result = await self.client.call_tool(tool, given)
        assert isinstance(result, CallToolResult)
        return result

    async def call_ok(self, tool: str, **given: Any) -> str:
        """Return the text of a call that must succeed."""
        result = await self.call(tool, **given)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def call_error(self, tool: str, **given: Any) -> str:
        """Return the text of a call that must fail."""
        result = await self.call(tool, **given)
        assert result.is_error, text_of(result)
        return text_of(result)

    async def facts(self, tool: str, **given: Any) -> dict[str, Any]:
        result = await self.call(tool, **given)
        assert result.structured_content is not None
        return result.structured_content

    async def send(self, subject: str, payload: Any, **more: Any) -> str:
        """Send a message that must be accepted; return its id."""
        facts = await self.facts("relay_send", subject=subject, payload=payload, **more)
        assert facts["delivered_to"] == 1, facts
        return str(facts["message_id"])

    async def read(self, **given: Any) -> list[tuple[str, str]]:
        """Return the ids and texts of the messages shown."""
        return shown(await self.call_ok("relay_inbox", **{"wait_seconds": 5, **given}))

    async def has_unread(self, count: int) -> None:
        """Wait until `count` messages have arrived."""

        async def has_arrived() -> bool:
            return bool((await self.facts("relay_status"))["unread_messages"] >= count)

        await eventually(has_arrived, f"{count} unread messages")


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def shown(text: str) -> list[tuple[str, str]]:
    ids = [found[1] for found in HEADING.finditer(text)]
    texts = [found[2] for found in FENCE.finditer(text)]
    return list(zip(ids, texts, strict=True))


@asynccontextmanager
async def running_model(
    url: str,
    identity: Identity,
    *,
    operator_token: str | None = None,
    guard: MessagingGuard | None = None,
    shared: bool = False,
    card: AgentCard | None = None,
) -> AsyncIterator[Model]:
    """Run a model and its MCP server in this process until the block ends."""
    connection = McpConnection(
        url, identity, operator_token=operator_token, guard=guard, shared=shared, card=card
    )
    async with connection, connected(Client(build_server(connection))) as model:
        yield model


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Model]:
    """Run a client in its own task: the SDK must exit in the task in which it entered, and a
    fixture starts and ends in different tasks."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with client:
            ready.set_result(None)
            await done.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
    try:
        if ready.done():
            yield Model(client)
    finally:
        done.set()
        await task


async def start_task(coroutine: Any) -> "asyncio.Task[Any]":
    """Start a task and let it run until its first wait."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    return task
