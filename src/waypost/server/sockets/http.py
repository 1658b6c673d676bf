"""uvicorn's HTTP protocol with bounds: nothing that a peer sends or does not read piles up.

Rule 1  At most `request_head_max_bytes` are read without progress: neither the end of a head (the
        request line and headers) nor a byte of a body. Trailers are dropped.
Rule 2  A head is complete within `HEAD_WAIT_S` of the connection or of the previous response.
Rule 3  One request may wait while another is answered; a third ends the connection after both.
Rule 4  A peer that does not read its response is disconnected.
"""

import logging
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from waypost.policy.bounds import request_head_max_bytes, request_headers_max
from waypost.wire.problems import Problem

log = logging.getLogger("waypost.server")

HEAD_WAIT_S = 10.0
"""The time for a complete head, and for a rejected peer to close its side."""
WRITE_WAIT_S = 30.0
"""The time in which a peer has to read `WRITE_MIN_BYTES` of its response, or all of it."""
WRITE_MIN_BYTES = 64 * 1024
PIECE_BYTES = 16 * 1024
"""Bytes parsed before progress is checked."""
DISCARDED_MAX_BYTES = 1024 * 1024
"""Bytes read and dropped of a rejected peer, so that it can read the reason."""

_encode = msgspec.json.Encoder().encode


class BoundedHttp(HttpToolsProtocol):
    """One HTTP connection; `since` is when it began to wait for a request, in loop time."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.since = self.loop.time()
        self._without_progress_bytes = 0
        self._progressed = False
        self._in_head = False
        self._is_too_large = False
        self._rejected = False
        self._crowded = False
        self._discarded_bytes = 0
        self._written_at = self.since
        self._unwritten_bytes = 0

    # The acceptor's view

    @property
    def is_expendable(self) -> bool:
        """Whether no complete request is being answered."""
        cycle = self._unanswered()
        return cycle is None or (cycle.more_body and not self.pipeline)

    def abort(self) -> None:
        """Close the connection without sending what is left."""
        self.transport.abort()

    def expire(self, now: float) -> None:
        """End the connection if its peer is late with its head or does not read its response."""
        is_waiting = self._rejected or self._unanswered() is None
        if is_waiting and now - self.since > HEAD_WAIT_S:
            if self._without_progress_bytes and not self._rejected:
                text = f"timeout: no complete headers within {HEAD_WAIT_S:g} s"
                self._reject(408, Problem(error=text, reason="too_slow"))
            else:
                self.abort()
            return
        unwritten = self.transport.get_write_buffer_size()
        if not unwritten or unwritten <= self._unwritten_bytes - WRITE_MIN_BYTES:
            self._written_at, self._unwritten_bytes = now, unwritten
        elif now - self._written_at > WRITE_WAIT_S:
            self.abort()
        elif not self._unwritten_bytes:
            self._unwritten_bytes = unwritten

    def resume_writing(self) -> None:
        """Note that the peer reads."""
        self._written_at, self._unwritten_bytes = self.loop.time(), 0
        super().resume_writing()

    def _unanswered(self) -> RequestResponseCycle | None:
        """Return the newest request whose response is not complete."""
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    # Reading

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, in pieces."""
        self._unset_keepalive_if_required()
        if self._rejected or self._crowded:
            self._discard(len(data))
        elif len(data) <= PIECE_BYTES:
            self._parse(data)
        else:
            pieces = memoryview(data)
            for begin in range(0, len(data), PIECE_BYTES):
                if not self._parse(pieces[begin : begin + PIECE_BYTES]):
                    return

    def _parse(self, piece: bytes | memoryview) -> bool:
        """Parse one piece; return whether the next one may be parsed."""
        self._progressed = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            return False
        except httptools.HttpParserError:
            if self._is_too_large:
                self._reject_large()
            else:
                self._reject(400, Problem(error="not a valid HTTP request", reason="invalid"))
            return False
        if self._progressed:
            self._without_progress_bytes = 0
        else:
            self._without_progress_bytes += len(piece)
            if self._without_progress_bytes > request_head_max_bytes:
                self._reject_large()
        return not (self._rejected or self._crowded)

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; drop a trailer."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request, or let it wait for the response before it."""
        self._progressed = True
        self._in_head = False
        if len(self.headers) > request_headers_max or self._without_progress_bytes:
            self._check_head()
        if self.pipeline or self._crowded:
            self._crowded = True
            self.cycle.keep_alive = False
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        self._progressed = True
        if not self._crowded:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._progressed = True
        if not self._crowded:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def _check_head(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > request_head_max_bytes or len(self.headers) > request_headers_max:
            self._is_too_large = True
            raise httptools.HttpParserError("head too large")

    # Rejecting

    def _reject_large(self) -> None:
        limits = f"at most {request_head_max_bytes:,} bytes and {request_headers_max} headers"
        self._reject(431, Problem(error=f"headers too large: {limits}", reason="too_large"))

    def _reject(self, status: int, problem: Problem) -> None:
        """Send the reason, drop what still arrives, and close."""
        fields = {"status": status, "peer": self.client}
        log.warning("request rejected: %s", problem.error, extra=fields)
        self._rejected = True
        self.since = self.loop.time()
        cycle = self._unanswered()
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        content = _encode(problem)
        head = [
            STATUS_LINE[status],
            b"content-type: application/json\r\ncontent-length: %d\r\n" % len(content),
            b"cache-control: no-store\r\nconnection: close\r\n\r\n",
        ]
        self.transport.write(b"".join([*head, content]))
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > DISCARDED_MAX_BYTES:
            self.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the request is answered as if it had not asked for another protocol."""
