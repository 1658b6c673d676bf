"""Accepts TCP connections, never more than there are file descriptors for.

Rule 1  At the limit, a new connection displaces old ones that carry no complete request and are
        not authenticated: idle sockets lock no one out.
Rule 2  Of those, the network with the most connections loses its oldest first.
Rule 3  If all connections are in use, the new one is closed at once.
Rule 4  An error of `accept` pauses accepting; it ends neither the listener nor the relay.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, cast

from waypost.policy.names import network_of

log = logging.getLogger("waypost.server")

TURN_CONNECTIONS = 64
"""Connections accepted before the event loop gets its turn."""
PAUSE_S = 0.5
"""The pause after an error of `accept`, such as too many open files."""
TLS_HANDSHAKE_S = 10.0
DISPLACED_PART = 16
"""A new connection at the limit displaces one in this many, so that the next need not search."""
_SWEPT_AT_ONCE = 500
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class OpenConnection(Protocol):
    """A connection; `since` is when it began to wait for a request, in loop time."""

    @property
    def since(self) -> float: ...
    @property
    def client(self) -> tuple[str, int] | None: ...
    @property
    def is_expendable(self) -> bool: ...
    def expire(self, now: float) -> None: ...
    def abort(self) -> None: ...


class Acceptor:
    """Accepts the connections of one listening socket; closes like an asyncio `Server`.

    `connections` is the set to which each protocol adds itself for as long as it is connected.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Iterable[object],
        *,
        connections_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._make_protocol = make_protocol
        self._connections = cast(set[OpenConnection], connections)
        self._max = connections_max
        self._tls = tls
        self._opening: dict[object, _Opening] = {}
        self._closed = False

    def start(self, backlog: int) -> None:
        """Listen, and accept from now on."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accept no more; drop connections whose TLS handshake is not complete."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            for one in list(self._opening.values()):
                one.abort()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left open after `close`."""

    async def sweep(self) -> None:
        """Let connections expire that have passed their deadline; call this once a second."""
        now = self._loop.time()
        for number, one in enumerate(list(self._connections), start=1):
            one.expire(now)
            if number % _SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept_some)

    def _accept_some(self) -> None:
        for _ in range(TURN_CONNECTIONS):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._pause(problem)
                return
            is_full = self._is_full()
            if is_full and not self._make_room():
                accepted.close()
                log.warning("connection closed: all %d connections are in use", self._max)
                continue
            self._open(accepted, address)
            if is_full:
                return  # displaced connections are gone on the next turn

    def _pause(self, problem: OSError) -> None:
        log.warning("cannot accept connections: %s; trying again", problem.strerror)
        if problem.errno in _OUT_OF_RESOURCES:
            self._make_room()
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(PAUSE_S, self._resume)

    def _is_full(self) -> bool:
        if len(self._connections) + len(self._opening) < self._max:
            return False
        return len(self._connections) + len(self._unconnected()) >= self._max

    def _make_room(self) -> bool:
        """Abort some expendable connections; return whether there were any."""
        candidates: list[OpenConnection] = [one for one in self._connections if one.is_expendable]
        candidates += [one for one in self._unconnected() if one.is_expendable]
        displaced = most_expendable(candidates, max(1, self._max // DISPLACED_PART))
        for one in displaced:
            one.abort()
        if displaced:
            log.warning("%d idle connections closed: the limit is %d", len(displaced), self._max)
        return bool(displaced)

    def _unconnected(self) -> list["_Opening"]:
        return [one for protocol, one in self._opening.items() if protocol not in self._connections]

    def _open(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        protocol = self._make_protocol()
        task = self._loop.create_task(self._connect(accepted, protocol))
        self._opening[protocol] = _Opening(accepted, address[:2], self._loop.time())
        task.add_done_callback(lambda done: self._opened(protocol, done))

    async def _connect(self, accepted: socket.socket, protocol: asyncio.Protocol) -> None:
        accepted.setblocking(False)
        await self._loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=self._tls,
            ssl_handshake_timeout=TLS_HANDSHAKE_S if self._tls else None,
        )

    def _opened(self, protocol: object, done: "asyncio.Task[None]") -> None:
        del self._opening[protocol]
        if not done.cancelled() and (problem := done.exception()) is not None:
            log.debug("connection failed: %s", problem)


class _Opening:
    """An accepted socket that is not connected yet: its TLS handshake is not complete."""

    def __init__(
        self, accepted: socket.socket, client: tuple[str, int] | None, since: float
    ) -> None:
        self._socket = accepted
        self.client = client
        self.since = since
        self.is_expendable = True

    def expire(self, now: float) -> None:
        """Do nothing: the handshake has a timeout of its own."""

    def abort(self) -> None:
        """Shut the socket down, which ends the handshake; it counts until it is closed."""
        self.is_expendable = False
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster


Candidate = TypeVar("Candidate", bound=OpenConnection)


def most_expendable(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """Return `count` connections: those with the most newer ones of their own network first."""
    newer: Counter[str] = Counter()
    ranked: list[tuple[int, float, Candidate]] = []
    for one in sorted(candidates, key=lambda one: one.since, reverse=True):
        network = network_of(one.client[0]) if one.client else ""
        ranked.append((-newer[network], one.since, one))
        newer[network] += 1
    ranked.sort(key=lambda found: found[:2])
    return [one for _, _, one in ranked[:count]]
