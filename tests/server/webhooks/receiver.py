"""A receiver of notices on a port of this machine: real sockets, scripted answers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

OK = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


class Posted(NamedTuple):
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Receiver:
    """Answers each request with the next of `answers`, then with 204; None is no answer at all."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.answers: list[bytes | None] = []
        self.port = 0
        self.closed_by_peer = 0
        self._hanging = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {one.partition(": ")[0].lower(): one.partition(": ")[2] for one in lines}
            body = await reader.readexactly(int(headers["content-length"]))
            self.posted.append(Posted(line, headers, body))
            answer = self.answers.pop(0) if self.answers else OK
            if answer is None:
                await self._hanging.wait()
            else:
                writer.write(answer)
                await writer.drain()
                await reader.read()  # the relay ends the connection
                self.closed_by_peer += 1
        except OSError:
            self.closed_by_peer += 1
        finally:
            writer.close()

    def release(self) -> None:
        """End the requests without an answer."""
        self._hanging.set()


def answer(status: int, headers: str = "", body: bytes = b"") -> bytes:
    """Return a response."""
    head = f"HTTP/1.1 {status} Anything\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.release()
        server.close()
