"""uvicorn's WebSocket, cut off where that one would wait for ever.

A transport that is closed the polite way first wants to be rid of what it has yet to send. To a
peer that is there and does not read, that never happens: its connection would stay, and with it
the name of its agent.
"""

import asyncio

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

CLOSING_S = 5.0
"""How long a peer has to read the rest, and to close its side."""


class ImpatientWebSocket(WebSocketsSansIOProtocol):
    """One that ends in time whatever the peer does."""

    _cut_off: asyncio.TimerHandle | None = None

    def keepalive_timeout(self) -> None:
        """The peer does not answer pings: the connection is over, now."""
        super().keepalive_timeout()
        self.transport.abort()

    async def run_asgi(self) -> None:
        """Until the connection is done with; then it has `CLOSING_S` to be gone."""
        await super().run_asgi()
        if not self.disconnected:
            self._cut_off = self.loop.call_later(CLOSING_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        if self._cut_off is not None:
            self._cut_off.cancel()
            self._cut_off = None
