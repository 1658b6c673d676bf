"""The server process: opens a relay with everything serving needs, listens, and shuts down.

Shutdown: the server accepts no new connections, disconnects agents with a reason, finishes
requests in progress, and closes the relay, which writes everything to disk. Whatever was
confirmed to a caller was on disk before.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from waypost.policy.bounds import frame_overhead_max_bytes
from waypost.policy.names import NamesConfig, is_loopback
from waypost.policy.settings import Settings
from waypost.relay.clock import Clock, system_clock
from waypost.relay.errors import RelayStopped
from waypost.relay.relay import Partition, Relay
from waypost.server.context import SERVED_SETTINGS, Membership, ServeOptions, ServerContext
from waypost.server.directory import Directory
from waypost.server.gate import Gate
from waypost.server.http.routing import make_http_app
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.relay_key import RelayKey
from waypost.server.live.sampler import Sampler
from waypost.server.mailbox_factory import MailboxFactory
from waypost.server.metrics import HttpMetrics
from waypost.server.names import Names, names_in_force
from waypost.server.origins import own_origins, parse_origin
from waypost.server.pipeline_jobs import PipelineJobs
from waypost.server.proxies import TrustedProxies
from waypost.server.sessions.hub import Hub
from waypost.server.sockets.http import BoundedHttp
from waypost.server.sockets.server import ListeningServer, Served
from waypost.server.sockets.websocket import BoundedWebSocket
from waypost.server.webhooks.webhooks import Webhooks
from waypost.server.websocket import Connection

log = logging.getLogger("waypost.server")

CONNECT_PATH = "/v1/connect"


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """Address to listen on; port 0 is any free port. With `certificate` and `key`, TLS.

    `origins`: the names of the relay, as URLs or HOST[:PORT]; empty stands for the defaults of
    `own_origins`. `trusted_proxies`: addresses and networks whose `X-Forwarded-For` headers are
    believed.
    """

    host: str = "127.0.0.1"
    port: int = 7171
    certificate: Path | None = None
    key: Path | None = None
    origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check origins and proxies. Raises `InvalidInput`."""
        TrustedProxies(self.trusted_proxies)
        for one in self.origins:
            parse_origin(one, self.port or 1)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server, also not through a proxy."""
        names = [parse_origin(one, self.port or 1).host for one in self.origins]
        return not self.trusted_proxies and all(map(is_loopback, (self.host, *names)))

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
    membership: Membership | None = None,
) -> AsyncIterator[ServerContext]:
    """Open the relay and the parts that serving it needs; close them on exit.

    With `membership`, it is one partition of several; raises `NotOwner` if another node was faster.
    """
    options = options or ServeOptions()
    ownership, partition, _ = membership or (None, None, None)

    def create_mailbox(subject: str) -> bool:
        return mailboxes.create(subject)  # assigned below, before anything can be published

    async with Relay(
        data_dir,
        settings=settings,
        clock=clock,
        create_mailbox=create_mailbox,
        ownership=ownership,
        partition=partition,
    ) as relay:
        public_key = _prepare_journal(relay, Path(data_dir))
        with closing(_authenticator(Path(data_dir), relay, membership)) as authenticator:
            mailboxes = MailboxFactory(
                relay, options.mailboxes_made_max, authenticator.has_authenticated
            )
            hub = Hub(relay, mailboxes)
            webhooks = Webhooks(relay, authenticator, hub)
            context = ServerContext(
                relay=relay,
                authenticator=authenticator,
                hub=hub,
                mailboxes=mailboxes,
                names=Names(relay, authenticator, hub, webhooks, _holds(partition)),
                webhooks=webhooks,
                directory=Directory(relay, authenticator, hub, options.directory),
                options=options,
                public_key=public_key,
                http_metrics=HttpMetrics(),
                sampler=Sampler(relay, hub),
                pipeline_jobs=_pipeline_jobs(options, relay, data_dir),
                clock=clock,
            )
            async with _running(context):
                yield context


def _holds(partition: Partition | None) -> Callable[[str], bool]:
    """Return whether a subject belongs here, as a function."""
    return (lambda subject: True) if partition is None else partition.holds


def _pipeline_jobs(options: ServeOptions, relay: Relay, data_dir: Path) -> PipelineJobs:
    return PipelineJobs(options.pipeline_command, data_dir, options.lake, relay.now_us)


@asynccontextmanager
async def _running(context: ServerContext) -> AsyncIterator[None]:
    """Connect the parts of a context, and stop them when the block ends."""
    context.relay.access.key_of = context.authenticator.key_of
    context.hub.note_of = context.directory.note_of
    try:
        yield
    finally:
        parts = (context.names, context.webhooks, context.sampler, context.pipeline_jobs)
        await asyncio.gather(*(part.close() for part in parts))


def _authenticator(data_dir: Path, relay: Relay, membership: Membership | None) -> Authenticator:
    """Return the authenticator of a relay: with keys and secrets of its own, or shared ones."""

    def clock_ms() -> int:
        return relay.now_us() // 1000

    def names() -> NamesConfig | None:
        return names_in_force(relay)

    if membership is None:
        return Authenticator.open(data_dir, clock_ms, names)
    return Authenticator(membership.identities, clock_ms, names)


def _prepare_journal(relay: Relay, data_dir: Path) -> str:
    """Share syncs, and sign the journal with the relay's key; return the public key."""
    relay.share_syncs()
    key = RelayKey.open(data_dir)
    relay.sign_journal(key)
    return key.public_key


def make_app(context: ServerContext) -> Starlette:
    """Return the ASGI application of all HTTP routes."""
    app = make_http_app()
    app.state.context = context
    return app


def with_connections(app: ASGIApp, context: ServerContext) -> ASGIApp:
    """Return `app` together with the WebSocket of agents.

    It is no route of `app`: a connection lasts, and every layer around it takes memory.
    """

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "websocket" and scope["path"] == CONNECT_PATH:
            return Connection(WebSocket(scope, receive, send), context).run()
        return app(scope, receive, send)

    return call


class ServedRelay:
    """One relay, with its agents and viewers."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.connections_max = context.options.connections_max

    def limit_sessions(self, sessions_max: int) -> None:
        """Connect at most `sessions_max` agents, so that others can connect, too."""
        self._context.hub.sessions_max = sessions_max

    def disconnect_all(self) -> None:
        """Disconnect agents and viewers, because the relay stops."""
        self._context.sampler.disconnect_all()
        self._context.hub.disconnect_all("the relay is shutting down; reconnect later")

    async def wait_until_empty(self) -> None:
        """Wait until all agents have disconnected."""
        await self._context.hub.wait_until_empty()

    async def failure(self) -> str:
        """Wait until the journal has failed for good; return why."""
        return await self._context.relay.inspect().journal_failure()


async def serve(
    context: ServerContext, listen: Listen, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until a stop signal; call `on_ready` with the URL once requests are accepted.

    The URL has the first name of the relay. Raises `OSError` if it cannot listen, and
    `RelayStopped` if the journal failed for good.
    """
    context.directory.is_local = listen.is_local
    app = with_connections(make_app(context), context)
    await serve_app(app, ServedRelay(context), listen, on_ready)


async def serve_app(
    app: ASGIApp, served: Served, listen: Listen, on_ready: Callable[[str], None]
) -> None:
    """Serve `app` as `serve` does."""
    with _bind(listen) as listener:
        host, port = listener.getsockname()[:2]
        origins = own_origins((host, port), listen.origins, listen.certificate)
        url = _url(listen, host, port)
        gate = Gate(app, origins, TrustedProxies(listen.trusted_proxies))
        log.info("accepting requests and proofs for %s", origins)
        server = ListeningServer(_config(gate, listen), served, lambda: on_ready(url))
        watching = asyncio.create_task(_stop_on_failure(server, served))
        try:
            await server.serve(sockets=[listener])
        finally:
            watching.cancel()
    if watching.done() and not watching.cancelled():
        raise RelayStopped(watching.result())


async def _stop_on_failure(server: ListeningServer, served: Served) -> str:
    """Stop serving when the journal has failed for good: a new process can recover it."""
    failure = await served.failure()
    log.critical("stopping: %s", failure)
    server.stop()
    return failure


def _url(listen: Listen, host: str, port: int) -> str:
    """Return a URL under which the relay accepts requests of this machine."""
    if listen.origins:
        return parse_origin(listen.origins[0], port, (listen.scheme,)).url
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{local}]" if ":" in local else local
    return f"{listen.scheme}://{shown}:{port}"


def _bind(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only on sockets that name their protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen.host, listen.port))
    except BaseException:
        listener.close()
        raise
    return listener


def _config(app: ASGIApp, listen: Listen) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http=BoundedHttp,
        ws=BoundedWebSocket,
        ws_max_size=frame_overhead_max_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # uvicorn would believe every caller on this machine
        backlog=4096,
        timeout_graceful_shutdown=10,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
    )
