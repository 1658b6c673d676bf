"""Two transports to a relay: a real socket, and ASGI messages in memory."""

import asyncio
from typing import Any, Protocol

from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from waypost.server.context import ServerContext
from waypost.server.origins import put_origins
from waypost.server.websocket import Connection

HOST = "relay.test:7171"
PATIENCE_S = 60.0


class ConnectionEnded(Exception):
    """Raised when the relay has ended the connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Transport(Protocol):
    """Carries frames both ways. `origin` is the "host:port" of the relay."""

    origin: str

    async def write(self, frame: str | bytes) -> None: ...
    async def read(self) -> str | bytes: ...
    async def disconnect(self) -> None: ...


class SocketTransport:
    """A WebSocket of the `websockets` library."""

    def __init__(self, socket: ClientConnection, origin: str) -> None:
        self.socket = socket
        self.origin = origin

    async def write(self, frame: str | bytes) -> None:
        try:
            await self.socket.send(frame)
        except ConnectionClosed as closed:
            raise _ended(closed) from None

    async def read(self) -> str | bytes:
        try:
            return await self.socket.recv()
        except ConnectionClosed as closed:
            raise _ended(closed) from None

    async def disconnect(self) -> None:
        """Close, and read meanwhile: the answer to the close comes after unread frames."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.socket.close())
            try:
                while True:
                    await self.socket.recv()
            except ConnectionClosed:
                pass

    def cut(self) -> None:
        """Abort the connection without a close frame."""
        self.socket.transport.abort()


class MemoryTransport:
    """A connection to `context` without a socket; the agent reads while `reads` is set."""

    def __init__(self, context: ServerContext, protocol: str | None, origin: str = HOST) -> None:
        self.origin = origin
        self.reads = asyncio.Event()
        self.reads.set()
        self._to_relay: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_relay: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._closed = False
        scope = {
            "type": "websocket",
            "path": "/v1/connect",
            "headers": [(b"host", origin.encode())],
            "subprotocols": [protocol] if protocol else [],
        }
        put_origins(scope, (HOST,))
        self._to_relay.put_nowait({"type": "websocket.connect"})
        websocket = WebSocket(scope, receive=self._to_relay.get, send=self._take)
        self.task = asyncio.create_task(Connection(websocket, context).run())

    async def write(self, frame: str | bytes) -> None:
        self.put(frame)
        await asyncio.sleep(0)

    def put(self, frame: str | bytes) -> None:
        kind = "text" if isinstance(frame, str) else "bytes"
        self._to_relay.put_nowait({"type": "websocket.receive", kind: frame})

    async def read(self) -> str | bytes:
        message = await self._from_relay.get()
        if message["type"] == "websocket.close":
            raise ConnectionEnded(message["code"], message["reason"])
        return message["text"] if message.get("text") is not None else message["bytes"]

    @property
    def unread_count(self) -> int:
        """How many frames of the relay the agent has not read."""
        return self._from_relay.qsize()

    async def disconnect(self) -> None:
        self._closed = True
        self._to_relay.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self.reads.set()
        await asyncio.wait([self.task], timeout=PATIENCE_S)
        assert self.task.done(), "the connection does not end"

    async def _take(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        if self._closed:
            raise OSError("closed")
        if message["type"] == "websocket.close":
            self._closed = True
            assert len(message["reason"].encode()) <= 123, "no WebSocket has room for this"
        if message["type"] != "websocket.accept":
            self._from_relay.put_nowait(message)


def _ended(closed: ConnectionClosed) -> ConnectionEnded:
    if closed.rcvd is None:
        return ConnectionEnded(1006, "")
    return ConnectionEnded(closed.rcvd.code, closed.rcvd.reason)
