"""Transports of the MCP server: stdin and stdout, or streamable HTTP.

Rule 1  Over stdio the server ends when the host closes stdin, or on a signal.
Rule 2  HTTP listens on loopback only, unless the allowed host names are given. Every client acts as
        this agent, so requests with another Host or Origin are rejected: a page in a browser must
        not reach it. With a token, requests without it are rejected.
"""

import asyncio
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from waypost.files import read_secret
from waypost.mcp.connection import McpConnection
from waypost.mcp.server import build_server, capabilities, lowlevel
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.policy.names import is_loopback

PATH = "/mcp"
LOOPBACK = "127.0.0.1"
SHUTDOWN_TIMEOUT_S = 2


class CannotListen(WaypostError):
    """The server cannot listen on the address."""


class HttpAddress(msgspec.Struct, frozen=True):
    """Where to listen. `names` are allowed host names besides those of loopback; with a `token`,
    requests must carry it."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    token: str | None = None


class BearerAuth:
    """ASGI middleware that answers 401 to requests without `Authorization: Bearer <token>`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode()
            if not secrets.compare_digest(given, self._expected):
                unauthorized = PlainTextResponse(
                    "token missing or wrong: send 'Authorization: Bearer <token>'",
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
                await unauthorized(scope, receive, send)
                return
        await self._app(scope, receive, send)


def parse_http(text: str, names: Sequence[str] = (), token_file: Path | None = None) -> HttpAddress:
    """Parse HOST:PORT, or PORT alone for loopback. Raises `InvalidInput`.

    A host other than loopback needs `names`, the host names of its clients' requests.
    """
    host, separator, port_text = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if separator else LOOPBACK
    if not port_text.isascii() or not port_text.isdecimal() or int(port_text) > 65535:
        raise InvalidInput(f"--http takes HOST:PORT or PORT, not {text!r:.80}")
    token = None if token_file is None else _read_token(token_file)
    address = HttpAddress(host or LOOPBACK, int(port_text), tuple(names), token)
    if not names and not is_loopback(address.host):
        raise InvalidInput(
            f"{address.host} is reachable from other machines, and every client acts as this agent:"
            f" use {LOOPBACK}, or set a token with --http-token-file and its host name with"
            " --allow-host"
        )
    return address


async def run_stdio(
    connection: McpConnection, *, channel: bool = False, events: bool = False
) -> None:
    """Serve over stdin and stdout until the host closes stdin."""
    from mcp.server.stdio import stdio_server

    # A thread reads stdin and cannot be interrupted, so a signal ends the process at once.
    # Nothing is lost: unacknowledged messages are delivered again.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server = lowlevel(build_server(connection, channel=channel, events=events))
    options = server.create_initialization_options(
        experimental_capabilities=capabilities(channel=channel)
    )
    async with connection, stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


async def run_http(
    connection: McpConnection,
    address: HttpAddress,
    ready: Callable[[str], None],
    *,
    events: bool = False,
) -> None:
    """Serve over streamable HTTP until a signal; call `ready` with the URL.

    Raises `CannotListen`.
    """
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    listening = _listen(address)
    names = [f"{LOOPBACK}:*", "localhost:*", "[::1]:*", *address.names]
    origins = [f"http://{one}" for one in names] + [f"https://{one}" for one in address.names]
    app = build_server(connection, events=events).streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=names, allowed_origins=origins
        ),
    )
    protected = app if address.token is None else BearerAuth(app, address.token)
    config = uvicorn.Config(
        protected, log_level="warning", access_log=False, lifespan="on", ws="none"
    )
    config.timeout_graceful_shutdown = SHUTDOWN_TIMEOUT_S  # clients may keep streams open for ever
    host = f"[{address.host}]" if ":" in address.host else address.host
    ready(f"http://{host}:{listening.getsockname()[1]}{PATH}")
    async with connection, _ignoring_signals():
        await uvicorn.Server(config).serve(sockets=[listening])


@asynccontextmanager
async def _ignoring_signals() -> AsyncIterator[None]:
    """Ignore SIGINT and SIGTERM outside uvicorn.

    uvicorn stops on a signal and then raises it again for the previous handler; the process must
    first disconnect from the relay.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _listen(address: HttpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as problem:
        raise CannotListen(
            f"cannot listen on {address.host}:{address.port}: {problem.strerror or problem}"
        ) from None


def _read_token(file: Path) -> str:
    try:
        token = read_secret(file).decode("ascii").strip()
    except OSError as problem:
        raise InvalidInput(f"cannot read the token in {file}: {problem.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if len(token.split()) != 1:
        raise InvalidInput(f"{file} holds no token: expected a single random word")
    return token


def run(
    connection: McpConnection,
    http: HttpAddress | None,
    ready: Callable[[str], None],
    *,
    channel: bool = False,
    events: bool = False,
) -> None:
    """Serve until the end: over HTTP if an address is given, else over stdin and stdout."""
    if http is None:
        asyncio.run(run_stdio(connection, channel=channel, events=events))
    else:
        asyncio.run(run_http(connection, http, ready, events=events))
