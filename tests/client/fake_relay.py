"""A server that listens like a relay and follows the script of a test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.client.session_harness import welcome
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.handshake import to_text

CODEC = CODECS[frames.JSON_PROTOCOL]
NONCE = to_text(bytes(32))
Script = Callable[["FakeConnection"], Awaitable[None]]


class FakeConnection:
    """The server's end of one connection; `number` counts connections from 1."""

    def __init__(self, websocket: ServerConnection, number: int) -> None:
        self.websocket = websocket
        self.number = number

    async def send_frame(self, *operations: frames.FrameOperation) -> None:
        for operation in operations:
            await self.websocket.send(CODEC.encode(operation).decode())

    async def send_together(self, *operations: frames.FrameOperation) -> None:
        """Send all operations in one frame."""
        await self.websocket.send(CODEC.encode(operations).decode())

    async def send_text(self, frame: str) -> None:
        """Send a frame that no codec of ours would encode."""
        await self.websocket.send(frame)

    async def send_bytes(self, raw: bytes) -> None:
        """Send bytes below the WebSocket library, in the order of its frames."""
        self.websocket.transport.write(raw)
        await self.websocket.drain()

    async def receive_frame(self) -> list[frames.FromAgent]:
        return CODEC.from_agent(await self.websocket.recv())

    async def accept(self, **limits: int) -> None:
        """Do the handshake and welcome any agent."""
        await self.send_frame(frames.Challenge(nonce=NONCE))
        [auth] = await self.receive_frame()
        assert isinstance(auth, frames.Auth)
        await self.send_frame(welcome(**limits), frames.QueueStatus(pending=0), frames.Live())

    async def reject(self, code: int, why: str) -> None:
        await self.send_frame(frames.Error(error=why, fatal=True))
        await self.websocket.close(code, why)

    async def stay_open(self) -> None:
        """Send nothing until the client disconnects."""
        await self.websocket.wait_closed()


@asynccontextmanager
async def run_fake_relay(script: Script, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Run `script` on every connection; yield the URL."""
    count = 0

    async def handle(websocket: ServerConnection) -> None:
        nonlocal count
        count += 1
        await script(FakeConnection(websocket, count))

    options = {"subprotocols": [frames.JSON_PROTOCOL], "compression": None, **options}
    async with serve(handle, "127.0.0.1", port, **options) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


def not_found(websocket: ServerConnection, request: Request) -> Response:
    return websocket.respond(HTTPStatus.NOT_FOUND, "no such page")
