"""The server process: opens a relay with everything serving needs, listens, and shuts down.

Shutdown: the server accepts no new connections, disconnects agents with a reason, finishes
requests in progress, and closes the relay, which writes everything to disk. Whatever was
confirmed to a caller was on disk before.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from waypost.policy.bounds import frame_overhead_max_bytes, payload_max_bytes
from waypost.policy.settings import HousekeepingConfig, Settings
from waypost.policy.tiers import WEEK_MS, QosConfig
from waypost.relay.clock import Clock, system_clock
from waypost.relay.relay import Relay
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.http.routing import make_http_app
from waypost.server.identity.authenticator import Authenticator
from waypost.server.live.sampler import Sampler
from waypost.server.mailbox_factory import MailboxFactory
from waypost.server.metrics import HttpMetrics
from waypost.server.sessions.hub import Hub
from waypost.server.websocket import Connection

SERVED_SETTINGS = Settings(
    default_ttl_ms=WEEK_MS,
    qos=QosConfig(enabled=True),
    housekeeping=HousekeepingConfig(sweep_interval_ms=5 * 60_000),
)
"""The defaults of a served relay; `config.json` overrides them."""

SHUTDOWN_WAIT_S = 2.0
"""The time that connected agents have to disconnect."""
CLOSE_DEADLINE_S = 5.0
"""The time that a peer has to read the rest and to close its side."""


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """Address to listen on; port 0 is any free port. With `certificate` and `key`, TLS."""

    host: str = "127.0.0.1"
    port: int = 7171
    certificate: Path | None = None
    key: Path | None = None

    @property
    def scheme(self) -> str:
        """The scheme of the server's URL."""
        return "https" if self.certificate else "http"


@asynccontextmanager
async def open_context(
    data_dir: Path,
    options: ServeOptions | None = None,
    *,
    settings: Settings = SERVED_SETTINGS,
    clock: Clock = system_clock,
) -> AsyncIterator[ServerContext]:
    """Open the relay and the parts that serving it needs; close them on exit."""
    options = options or ServeOptions()

    def create_mailbox(subject: str) -> bool:
        return mailboxes.create(subject)  # assigned below, before anything can be published

    async with Relay(
        data_dir, settings=settings, clock=clock, create_mailbox=create_mailbox
    ) as relay:
        authenticator = Authenticator.open(Path(data_dir), lambda: clock() // 1000)
        try:
            mailboxes = MailboxFactory(
                relay, options.mailboxes_made_max, authenticator.has_authenticated
            )
            hub = Hub(relay, mailboxes)
            sampler = Sampler(relay, hub)
            try:
                yield ServerContext(
                    relay=relay,
                    authenticator=authenticator,
                    hub=hub,
                    mailboxes=mailboxes,
                    options=options,
                    http_metrics=HttpMetrics(),
                    sampler=sampler,
                    lake=options.lake or Path(data_dir) / "lake",
                    clock=clock,
                )
            finally:
                await sampler.close()
        finally:
            authenticator.close()


def make_app(context: ServerContext) -> Starlette:
    """Return the ASGI application: HTTP routes and the WebSocket."""

    async def connect(websocket: WebSocket) -> None:
        await Connection(websocket, context).run()

    app = make_http_app()
    app.state.context = context
    app.router.routes += [WebSocketRoute("/v1/connect", connect)]
    return app


class DeadlineWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a hard deadline on close.

    A transport that is closed normally first sends its buffer. To a peer that stays connected and
    does not read, that takes for ever: the connection would keep its subject occupied.
    """

    _abort_timer: asyncio.TimerHandle | None = None

    def keepalive_timeout(self) -> None:
        """Abort the connection of a peer that does not answer pings."""
        super().keepalive_timeout()
        self.transport.abort()

    async def run_asgi(self) -> None:
        """Serve the connection; abort it `CLOSE_DEADLINE_S` after the end if it is still open."""
        await super().run_asgi()
        if not self.disconnected:
            self._abort_timer = self.loop.call_later(CLOSE_DEADLINE_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None


class _Server(uvicorn.Server):
    """Reports when it is ready, and disconnects agents and viewers before it stops."""

    def __init__(
        self, config: uvicorn.Config, context: ServerContext, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._hub = context.hub
        self._sampler = context.sampler
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report that requests are accepted."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Disconnect agents and viewers, then shut down."""
        for server in self.servers:
            server.close()
        self._sampler.disconnect_all()
        self._hub.disconnect_all("the relay is shutting down; reconnect later")
        try:
            async with asyncio.timeout(SHUTDOWN_WAIT_S):
                await self._hub.wait_until_empty()
        except TimeoutError:
            pass
        await super().shutdown(sockets)


async def serve(
    context: ServerContext, listen: Listen, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until a stop signal; call `on_ready` with the URL once requests are accepted."""
    with _bind(listen) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        url = f"{listen.scheme}://{shown}:{port}"
        server = _Server(_config(context, listen), context, lambda: on_ready(url))
        await server.serve(sockets=[listener])


def _bind(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen.host, listen.port))
    except BaseException:
        listener.close()
        raise
    return listener


def _config(context: ServerContext, listen: Listen) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(context),
        loop="none",
        http="httptools",
        ws=DeadlineWebSocket,
        ws_max_size=payload_max_bytes + 2 * frame_overhead_max_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=4096,
        timeout_graceful_shutdown=10,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
    )
