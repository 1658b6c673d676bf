"""A relay being served: opened in the order it needs, and closed so that nothing is lost.

Closing: nobody new is let in, connected agents are told, requests under way are finished, and
then the relay writes everything down. What was confirmed to anyone was on disk before.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn

from waypost.policy.bounds import frame_overhead_max_bytes, payload_max_bytes
from waypost.policy.settings import HousekeepingConfig, Settings
from waypost.policy.tiers import WEEK_MS, QosConfig
from waypost.relay.clock import Clock, system_clock
from waypost.relay.relay import Relay
from waypost.server.app import make_app
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.identity.authenticator import Authenticator
from waypost.server.live.sampler import Feed
from waypost.server.mailbox_factory import Mailboxes
from waypost.server.metrics import Meters
from waypost.server.sessions.hub import Hub
from waypost.server.sessions.sockets import ImpatientWebSocket

SERVED_SETTINGS = Settings(
    default_ttl_ms=WEEK_MS,
    qos=QosConfig(enabled=True),
    housekeeping=HousekeepingConfig(sweep_interval_ms=5 * 60_000),
)
"""What a served relay starts from; `config.json` overrides it."""

FAREWELL_S = 2.0
"""How long connected agents have to take note of the end."""


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. Port 0 is any that is free. With `certificate` and `key`: TLS."""

    host: str = "127.0.0.1"
    port: int = 7171
    certificate: Path | None = None
    key: Path | None = None

    @property
    def scheme(self) -> str:
        """What URLs begin with."""
        return "https" if self.certificate else "http"


@asynccontextmanager
async def open_context(
    data_dir: Path,
    options: ServeOptions | None = None,
    *,
    settings: Settings = SERVED_SETTINGS,
    clock: Clock = system_clock,
) -> AsyncIterator[ServerContext]:
    """Open the relay and everything that serving it needs; closed at the end."""
    options = options or ServeOptions()

    def create_mailbox(subject: str) -> bool:
        return mailboxes.make_for(subject)  # made below, before anything can be published

    async with Relay(
        data_dir, settings=settings, clock=clock, create_mailbox=create_mailbox
    ) as relay:
        authenticator = Authenticator.open(Path(data_dir), lambda: clock() // 1000)
        try:
            mailboxes = Mailboxes(
                relay, options.mailboxes_made_max, lambda who: authenticator.card(who) is not None
            )
            hub = Hub(relay, mailboxes)
            feed = Feed(relay, hub)
            try:
                yield ServerContext(
                    relay=relay,
                    authenticator=authenticator,
                    hub=hub,
                    mailboxes=mailboxes,
                    options=options,
                    meters=Meters(),
                    feed=feed,
                    lake=options.lake or Path(data_dir) / "lake",
                    clock=clock,
                )
            finally:
                await feed.close()
        finally:
            authenticator.close()


class _Server(uvicorn.Server):
    """Says when it is ready, and tells agents and viewers before it goes."""

    def __init__(
        self, config: uvicorn.Config, services: ServerContext, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._hub = services.hub
        self._feed = services.feed
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin as usual, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye, then end as usual."""
        for server in self.servers:
            server.close()
        self._feed.dismiss_all()
        self._hub.dismiss_all("the relay is shutting down; connect again later")
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._hub.empty()
        except TimeoutError:
            pass
        await super().shutdown(sockets)


async def serve(
    services: ServerContext, listen: Listen, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until a signal says to stop; `on_ready` is told the URL once requests are taken."""
    with _bind(listen) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        url = f"{listen.scheme}://{shown}:{port}"
        server = _Server(_config(services, listen), services, lambda: on_ready(url))
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


def _config(services: ServerContext, listen: Listen) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(services),
        loop="none",
        http="httptools",
        ws=ImpatientWebSocket,
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
