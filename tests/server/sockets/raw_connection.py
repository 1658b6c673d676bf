"""TCP connections that send any bytes, for attacks on a served relay."""

import asyncio
import json
import select
import socket
import struct
from dataclasses import dataclass

MASK = b"\x00\x00\x00\x00"
PING, PONG = b"\x89\x80" + MASK, b"\x8a\x80" + MASK
EMPTY_FRAGMENT = b"\x00\x80" + MASK
UPGRADE = (
    "GET /v1/connect HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)


def text_frame(content: bytes, *, opcode: int = 1, is_last: bool = True) -> bytes:
    """Return a masked frame of at most 64 KiB; opcode 0 continues a message."""
    first = (0x80 if is_last else 0) | opcode
    if len(content) < 126:
        return bytes([first, 0x80 | len(content)]) + MASK + content
    return bytes([first, 0x80 | 126]) + struct.pack("!H", len(content)) + MASK + content


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def error(self) -> str:
        return str(json.loads(self.body)["error"])


class RawConnection:
    """One TCP connection; `reader` and `writer` are asyncio's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: str) -> "RawConnection":
        host, port = address.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, content: bytes) -> None:
        """Send; stop if the relay has closed."""
        try:
            self.writer.write(content)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def response(self) -> Response:
        """Read one HTTP response."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (one.partition(": ") for one in lines)
            }
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Response(int(status.split()[1]), headers, body)

    async def ended(self, timeout_s: float = 60) -> bytes:
        """Return the rest, once the relay has closed the connection."""
        rest = b""
        try:
            async with asyncio.timeout(timeout_s):
                while piece := await self.reader.read(65536):
                    rest += piece
        except ConnectionError:
            pass
        finally:
            self.close()
        return rest

    async def upgrade(self, address: str, more: str = "") -> Response:
        """Open a WebSocket."""
        await self.send(UPGRADE.format(address=address, more=more).encode())
        return await self.response()

    def close(self) -> None:
        self.writer.transport.abort()


class DeafSocket:
    """A socket that reads nothing, with a small buffer."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, 0)

    def send(self, content: bytes) -> int:
        """Send as much as fits now; return how much that was."""
        try:
            return self._socket.send(content)
        except BlockingIOError:
            return 0
        except ConnectionError:
            return -1

    def is_reset(self) -> bool:
        """Return whether the relay has closed the connection."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket.close()
