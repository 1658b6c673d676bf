"""Posts one notice to one URL.

Rule 1  The name of a host is resolved once. Every address is checked, and the connection is made to
        a checked address, with the name in TLS and in the Host header: a name that resolves to
        something else a moment later gains nothing.
Rule 2  Certificates are verified, redirects not followed, proxies not used, and of the response
        only the head is read, up to a bound.
Rule 3  A post has a deadline. Posts to the hosts of one entry in the settings share a few
        connections, and those of other entries have their own: a slow receiver makes no other
        entry's wait.
"""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from waypost.policy.bounds import (
    webhook_connections_max,
    webhook_head_max_bytes,
    webhook_host_connections_max,
)
from waypost.policy.errors import InvalidInput
from waypost.policy.webhooks import (
    WebhooksConfig,
    WebhookUrl,
    check_addresses,
    check_host,
    is_address,
    parse_url,
)

CONNECT_TIMEOUT_S = 5.0
POST_TIMEOUT_S = 10.0
_ADDRESSES_TRIED_MAX = 3
_INTERIM_RESPONSES_MAX = 4
_GONE = 410

_parse_status = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]").match


class Request(NamedTuple):
    """A body of JSON, and the headers that belong to it."""

    headers: Mapping[str, str]
    body: bytes


Resolve = Callable[[str], Awaitable[list[str]]]
Write = Callable[[], Request | None]


_FAILURES = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class PostResult(NamedTuple):
    """The outcome of one post. `status` is 0 without a response; `problem` is "" if it is 2xx.

    `final`: trying again is of no use.
    """

    status: int = 0
    problem: str = ""
    final: bool = False


class Sender:
    """Posts notices to hosts that `config` allows at that moment."""

    def __init__(
        self, config: Callable[[], WebhooksConfig], resolve: Resolve | None = None
    ) -> None:
        self._config = config
        self._resolve = resolve or Resolver().resolve
        self._connections = _Connections()
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, write: Write) -> PostResult | None:
        """Post what `write` returns, and return the outcome; failures are results, too.

        `write` is called when there is a connection to use: until then, a notice takes no memory.
        If it returns None there is nothing to post any more, and the outcome is None.
        """
        try:
            parsed = parse_url(url)
        except InvalidInput as problem:
            return PostResult(problem=str(problem), final=True)
        verdict = check_host(parsed, self._config())
        if not verdict.allowed:
            return PostResult(problem=verdict.detail, final=True)
        async with self._connections.of(verdict.entry, self._config()):
            request = write()
            if request is None:
                return None
            try:
                async with asyncio.timeout(POST_TIMEOUT_S):
                    return await self._post(parsed, request)
            except _FAILURES as problem:
                return PostResult(problem=_describe(problem))

    async def _post(self, url: WebhookUrl, request: Request) -> PostResult:
        addresses = [url.host] if is_address(url.host) else await self._resolve(url.host)
        verdict = check_host(url, self._config())  # it may have changed while this one waited
        problem = verdict.detail or check_addresses(url, addresses, private=verdict.private)
        if problem:
            return PostResult(problem=problem, final=True)
        reader, writer = await self._connect(url, addresses)
        try:
            writer.write(_encode(url, request))
            await writer.drain()
            return _judge(await _read_status(reader))
        finally:
            writer.transport.abort()  # closing TLS politely would wait for the receiver

    async def _connect(
        self, url: WebhookUrl, addresses: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure: Exception = OSError("no address")
        for address in addresses[:_ADDRESSES_TRIED_MAX]:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(
                        address,
                        url.port,
                        limit=webhook_head_max_bytes,
                        ssl=self._context() if url.scheme == "https" else None,
                        server_hostname=url.host if url.scheme == "https" else None,
                    )
            except (OSError, TimeoutError) as problem:
                failure = problem
        raise failure

    def _context(self) -> ssl.SSLContext:
        """Return the TLS settings: this machine's authorities, or those of SSL_CERT_FILE."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class Resolver:
    """Resolves names in threads of its own, one for each name at a time.

    A thread cannot be cancelled: a name server that does not answer holds one, not those that the
    rest of the relay uses.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of a host. Raises `OSError`."""
        found = self._running.get(host)
        if found is None:
            found = self._running[host] = asyncio.get_running_loop().create_future()
            found.add_done_callback(lambda done: self._end(host, done))
            threading.Thread(target=_look_up, args=(host, found), daemon=True).start()
        return await asyncio.shield(found)

    def _end(self, host: str, done: asyncio.Future[list[str]]) -> None:
        del self._running[host]
        if not done.cancelled():
            done.exception()  # retrieved, also if no one waits for it any more


class _Connections:
    """The connections of each entry in the settings, and of all together."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(webhook_connections_max)
        self._by_entry: dict[str, asyncio.Semaphore] = {}
        self._config: WebhooksConfig | None = None

    @asynccontextmanager
    async def of(self, entry: str, config: WebhooksConfig) -> AsyncIterator[None]:
        """Hold a connection of `entry` during the block."""
        if config is not self._config:  # those in use before end within seconds
            self._config, self._by_entry = config, {}
        entries = max(1, len(config.allowed_hosts) + len(config.private_hosts))
        share = min(webhook_host_connections_max, webhook_connections_max // entries)
        own = self._by_entry.setdefault(entry, asyncio.Semaphore(share))
        async with own, self._all:
            yield


def _look_up(host: str, found: asyncio.Future[list[str]]) -> None:
    addresses: list[str] = []
    failure: OSError | None = None
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(one[4][0]) for one in infos))
    except (OSError, UnicodeError) as problem:
        failure = problem if isinstance(problem, OSError) else OSError(str(problem))

    def finish() -> None:
        if found.done():
            return
        if failure is None:
            found.set_result(addresses)
        else:
            found.set_exception(failure)

    try:
        found.get_loop().call_soon_threadsafe(finish)
    except RuntimeError:
        pass  # the relay has stopped meanwhile


def _encode(url: WebhookUrl, request: Request) -> bytes:
    headers, body = request.headers, request.body
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.authority}",
        "User-Agent: waypost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _read_status(reader: asyncio.StreamReader) -> int:
    """Return the status of the response; responses before the final one are skipped."""
    for _ in range(_INTERIM_RESPONSES_MAX):
        found = _parse_status(await reader.readuntil(b"\r\n\r\n"))
        if found is None:
            break
        if int(found[1]) >= 200:
            return int(found[1])
    raise ValueError("it does not answer as an HTTP server")


def _judge(status: int) -> PostResult:
    if status < 300:
        return PostResult(status)
    if status < 400:
        return PostResult(status, f"it answers {status}: redirects are not followed", final=True)
    return PostResult(status, f"it answers {status}", final=status == _GONE)


def _describe(problem: Exception) -> str:
    """Return what went wrong, in words for the agent: nothing that the receiver chose."""
    match problem:
        case TimeoutError():
            limits = f"{CONNECT_TIMEOUT_S:g} s to connect, {POST_TIMEOUT_S:g} s in all"
            return f"no answer in time: {limits}"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {problem.verify_message}"
        case socket.gaierror():
            return f"its host cannot be resolved: {problem.strerror}"
        case asyncio.LimitOverrunError():
            return f"the head of its answer is larger than {webhook_head_max_bytes:,} bytes"
        case asyncio.IncompleteReadError() | ConnectionResetError():
            return "it ended the connection without an answer"
        case ValueError():
            return str(problem)
        case _:
            return f"no connection: {problem}"
