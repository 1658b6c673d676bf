"""uvicorn's server with its own sockets, which stops at once.

Rule 1  It accepts connections with an `Acceptor`, and ends those past their deadline every second.
Rule 2  A signal wakes it, and it ends with its last request. uvicorn looks for both ten times a
        second, which keeps an idle process busy and delays its end.
"""

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import Protocol, cast

import uvicorn

from waypost.server.sockets.acceptor import Acceptor
from waypost.server.sockets.http import BoundedHttp
from waypost.server.sockets.open_files import connections_allowed

SHUTDOWN_WAIT_S = 2.0
"""The time that connected agents have to disconnect."""
TICK_S = 1.0
_POLL_S = 0.005


class Served(Protocol):
    """What a server listens for: one relay, or a node with several.

    Of at most `connections_max` connections, agents may have as many as `limit_sessions` is called
    with. `failure` returns the cause when it cannot go on.
    """

    connections_max: int

    def limit_sessions(self, sessions_max: int) -> None: ...
    def disconnect_all(self) -> None: ...
    async def wait_until_empty(self) -> None: ...
    async def failure(self) -> str: ...


class ListeningServer(uvicorn.Server):
    """Reports when it is ready, and disconnects agents and viewers before it stops."""

    def __init__(
        self, config: uvicorn.Config, served: Served, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._served = served
        self._on_ready = on_ready
        self._acceptors: list[Acceptor] = []
        self._connections_max = connections_allowed(served.connections_max)
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        served.limit_sessions(self._connections_max - self._connections_max // 8)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report that requests are accepted."""
        await super().startup([])
        for listener in sockets or []:
            acceptor = Acceptor(
                listener,
                self._make_protocol,
                self.server_state.connections,
                connections_max=self._connections_max,
                tls=self.config.ssl,
            )
            acceptor.start(self.config.backlog)
            self._acceptors.append(acceptor)
            self.servers.append(cast(asyncio.Server, acceptor))
        self._on_ready()

    async def main_loop(self) -> None:
        """Wait for a stop signal; end connections past their deadline once a second."""
        while not await self.on_tick(0):  # which does everything that uvicorn does once a second
            for acceptor in self._acceptors:
                await acceptor.sweep()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._stopping.wait()
            except TimeoutError:
                pass

    def stop(self) -> None:
        """Stop serving; may be called by a signal handler."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._stopping.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after a signal; after a second Ctrl-C, without waiting for requests."""
        super().handle_exit(sig, frame)
        self.stop()

    def _make_protocol(self) -> BoundedHttp:
        return BoundedHttp(self.config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Disconnect agents and viewers, finish requests in progress, and close the sockets."""
        for server in self.servers:
            server.close()
        self._served.disconnect_all()
        try:
            async with asyncio.timeout(SHUTDOWN_WAIT_S):
                await self._served.wait_until_empty()
        except TimeoutError:
            pass
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._finish_requests()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    async def _finish_requests(self) -> None:
        """Wait until no connection and no request is left, or until a second Ctrl-C."""
        state = self.server_state
        while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        for server in self.servers:
            await server.wait_closed()
