"""A TCP proxy in front of a relay, whose connections a test can cut."""

import asyncio
import socket

from tests.harness.listening_relay import ListeningRelay


class TcpProxy:
    """Connects agents to a relay until `cut`; rejects connections while `is_closed`.

    `connections` and `rejected` count attempts to connect, `carried` counts bytes both ways.
    """

    def __init__(self, relay: ListeningRelay, listener: socket.socket) -> None:
        self._relay = relay
        self._listener = listener
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_closed = False
        self.connections = 0
        self.rejected = 0
        self.carried = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, sock=self._listener)

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection at both ends; bytes on their way are lost."""
        for end in self._ends:
            end.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            self.rejected += 1
            writer.transport.abort()
            return
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._relay.port)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(reader, far_writer))
                tasks.create_task(self._carry(far_reader, writer))
        finally:
            self._ends -= {writer, far_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                self.carried += len(piece)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
