"""Runs the server: over stdin and stdout, or over HTTP.

Rule 1  Over stdin it ends when the program that started it closes that, or with a signal.
Rule 2  HTTP listens on this machine only, unless told which names it may be called by. Whoever
        reaches it speaks as this agent, so requests with another Host or Origin are refused: a
        page in a browser must not be able to. With a token, whoever has it may, and nobody else.
"""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from waypost.mcp.connection import Presence
from waypost.mcp.doorkeeper import Doorkeeper
from waypost.mcp.server import build_server
from waypost.policy.errors import InvalidInput, WaypostError

PATH = "/mcp"
LOOPBACK = "127.0.0.1"
GOODBYE_S = 2


class CannotListen(WaypostError):
    """The address cannot be listened on."""


class HttpAddress(msgspec.Struct, frozen=True):
    """Where to listen. `names` are those it may be called by besides those of this machine; with
    a `token`, requests must carry it."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    token: str | None = None


def parse_http(text: str, names: Sequence[str] = (), token_file: Path | None = None) -> HttpAddress:
    """HOST:PORT, or PORT alone for this machine. Raises `InvalidInput`.

    A host that others reach needs `names`: what they call it.
    """
    host, separator, port_text = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if separator else LOOPBACK
    if not port_text.isascii() or not port_text.isdecimal() or int(port_text) > 65535:
        raise InvalidInput(f"--http takes HOST:PORT or PORT, not {text!r:.80}")
    token = None if token_file is None else _read_token(token_file)
    address = HttpAddress(host or LOOPBACK, int(port_text), tuple(names), token)
    if not names and not _is_loopback(address.host):
        raise InvalidInput(
            f"{address.host} can be reached by others, and whoever reaches it speaks as this agent:"
            f" use {LOOPBACK}, or give it a token with --http-token-file, and with --allow-host the"
            " name it is called by"
        )
    return address


async def run_stdio(presence: Presence) -> None:
    """Serve whoever started this process, until they close stdin."""
    # A thread reads stdin and cannot be interrupted, so a signal ends the process as it stands.
    # Nothing is lost by that: what was not acknowledged comes again.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with presence:
        await build_server(presence).run_stdio_async()


async def run_http(presence: Presence, address: HttpAddress, ready: Callable[[str], None]) -> None:
    """Serve over streamable HTTP until a signal; `ready` is told the URL.

    Raises `CannotListen`.
    """
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    listening = _listen(address)
    names = [f"{LOOPBACK}:*", "localhost:*", "[::1]:*", *address.names]
    origins = [f"http://{one}" for one in names] + [f"https://{one}" for one in address.names]
    app = build_server(presence).streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=names, allowed_origins=origins
        ),
    )
    guarded = app if address.token is None else Doorkeeper(app, address.token)
    config = uvicorn.Config(
        guarded, log_level="warning", access_log=False, lifespan="on", ws="none"
    )
    config.timeout_graceful_shutdown = GOODBYE_S  # streams are open as long as clients like
    host = f"[{address.host}]" if ":" in address.host else address.host
    ready(f"http://{host}:{listening.getsockname()[1]}{PATH}")
    async with presence, _ignoring_signals():
        await uvicorn.Server(config).serve(sockets=[listening])


@asynccontextmanager
async def _ignoring_signals() -> AsyncIterator[None]:
    """uvicorn ends with a signal and then raises it once more, for whoever handled it before:
    that must not end the process before it has said goodbye to the relay."""
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
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"cannot read the token in {file}: {problem}") from None
    if len(token.split()) != 1:
        raise InvalidInput(f"{file} holds no token: expected one word, hard to guess")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run(presence: Presence, http: HttpAddress | None, ready: Callable[[str], None]) -> None:
    """Serve until the end: over HTTP if there is an address, else over stdin and stdout."""
    if http is None:
        asyncio.run(run_stdio(presence))
    else:
        asyncio.run(run_http(presence, http, ready))
