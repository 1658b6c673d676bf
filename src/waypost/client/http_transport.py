"""HTTP exchanges with a bounded answer and a deadline, whatever the server does.

Rule 1  The deadline is that of the whole exchange. Timeouts of single reads would let a server
        that sends a byte now and then hold a caller for ever.
Rule 2  An answer is read up to its bound and no further. Compressed answers are not asked for and
        not accepted: their size is known only when they are expanded.
"""

import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

ANSWER_MAX_BYTES = 64 * 1024 * 1024
"""Four times the messages that a relay puts into one answer."""
EXCHANGE_TIMEOUT_S = 120.0
_CONNECT_TIMEOUT_S = 10.0


class UnacceptableAnswer(Exception):
    """An answer that is too large or compressed."""


class HttpTransport:
    """Exchanges requests and answers with one server. Safe to use from several threads."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._deadline = _Deadline()
        self._client = httpx.Client(
            transport=_Transport(tls, self._deadline),
            headers={"Accept-Encoding": "identity"},
            timeout=httpx.Timeout(EXCHANGE_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def exchange(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        """Return the status and the body of the answer.

        Raises `httpx.HTTPError`; `httpx.TimeoutException` after `EXCHANGE_TIMEOUT_S`;
        `UnacceptableAnswer`.
        """
        self._deadline.start(EXCHANGE_TIMEOUT_S)
        with self._client.stream(method, url, **request) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise UnacceptableAnswer("it is compressed")
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > ANSWER_MAX_BYTES:
                    raise UnacceptableAnswer(f"it is larger than {ANSWER_MAX_BYTES >> 20} MiB")
            return response.status_code, bytes(body)


class _Deadline(threading.local):
    """The end of the exchange that this thread makes."""

    at = 0.0

    def start(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self, timeout: float | None) -> float:
        """Return the rest of the exchange's time, or `timeout` if that is shorter."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the exchange took too long")
        return left if timeout is None else min(timeout, left)


class _Transport(httpx.HTTPTransport):
    """httpx's transport, on connections with a deadline."""

    def __init__(self, tls: ssl.SSLContext | None, deadline: _Deadline) -> None:
        super().__init__(verify=tls or False, trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls, network_backend=_Backend(deadline), keepalive_expiry=5.0
        )


class _Backend(httpcore.SyncBackend):
    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout)
        stream = super().connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
