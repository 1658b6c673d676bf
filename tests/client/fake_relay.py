"""Something that listens like a relay and then does what the test says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.client.session_harness import welcome
from waypost.wire import frames
from waypost.wire.handshake import to_text

CODEC = frames.CODECS[frames.JSON_PROTOCOL]
NONCE = to_text(bytes(32))
Part = Callable[["Line"], Awaitable[None]]


class Line:
    """The relay's end of one connection; `number` counts them from 1."""

    def __init__(self, websocket: ServerConnection, number: int) -> None:
        self.websocket = websocket
        self.number = number

    async def say(self, *operations: frames.FrameOperation) -> None:
        for operation in operations:
            await self.websocket.send(CODEC.encode(operation).decode())

    async def hear(self) -> list[frames.FromAgent]:
        return CODEC.from_agent(await self.websocket.recv())

    async def let_in(self, **limits: int) -> None:
        """The handshake; whoever it is may come in."""
        await self.say(frames.Challenge(nonce=NONCE))
        [auth] = await self.hear()
        assert isinstance(auth, frames.Auth)
        await self.say(welcome(**limits), frames.QueueStatus(pending=0), frames.Live())

    async def reject(self, code: int, why: str) -> None:
        await self.say(frames.Error(error=why, fatal=True))
        await self.websocket.close(code, why)

    async def listen_on(self) -> None:
        """Say nothing until the other side goes."""
        await self.websocket.wait_closed()


@asynccontextmanager
async def pretend(part: Part, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Play `part` on every connection; gives the URL."""
    count = 0

    async def handle(websocket: ServerConnection) -> None:
        nonlocal count
        count += 1
        await part(Line(websocket, count))

    options = {"subprotocols": [frames.JSON_PROTOCOL], "compression": None, **options}
    async with serve(handle, "127.0.0.1", port, **options) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


def not_found(websocket: ServerConnection, request: Request) -> Response:
    return websocket.respond(HTTPStatus.NOT_FOUND, "no such page")
