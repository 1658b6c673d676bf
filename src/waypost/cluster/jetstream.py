"""A stream of NATS JetStream as the log of one partition.

Rule 1  A record is one message on the subject `….batch`. If it is larger than a message may be, its
        first pieces are messages on `….piece`, directly before it. Pieces without their record
        are ignored.
Rule 2  Every message expects the sequence before it (`Nats-Expected-Last-Sequence`).
Rule 3  Positions are sequences of the stream. The end is read through the stream's leader; an old
        leader may return an old end, which costs a conflict and nothing else.

Failures and answers:
  no answer, no leader, connection lost   `Unknown` for an append, `LogUnavailable` for a read
  the stream is full                      `LogUnusable`: raise its `max_bytes`
  the stream is gone                      `LogUnusable`
  a gap, or a consumer lost by a restart  the consumer is created again
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from waypost.relay.errors import LogUnavailable, LogUnusable
from waypost.relay.journal.log import (
    Appended,
    Conflict,
    Entry,
    Header,
    Outcome,
    Record,
    Tail,
    Unknown,
)

RECORD_HEADER = "Waypost-Record"
PIECE_HEADER = "Waypost-Piece"

_HEADERS_MAX_BYTES = 2048
_RECORDS_PER_FETCH = 32
_RETRY_S = 0.05
TIMEOUT_S = 6.0
"""For which an append waits for an answer."""
_QUESTION_TIMEOUTS = 2
"""A question is asked again for as many timeouts: servers that lost a leader elect one for 4 to
9 s. An owner that gave up earlier would send its agents away for nothing."""

_PIECE_WAIT_S = 1.0
_DELETE_S = 1.0
_ATTEMPTS = 5

_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
_STREAM_NOT_FOUND = 10059
_FULL = frozenset({10023, 10047, 10077, 10122})
_NEVER = frozenset({10054, 10060, 10097})
_TRANSIENT = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)

T = TypeVar("T")


class _Stored(msgspec.Struct, frozen=True):
    """A record's header in its message: `lines` and `bodies` are lengths in bytes."""

    header: Header
    lines: int
    bodies: int
    pieces: int


class JetStreamLog:
    """The stream `stream`, whose messages are on `subject.batch` and `subject.piece`.

    The connection belongs to the caller.
    """

    def __init__(
        self, client: Client, stream: str, subject: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=timeout_s)
        self._stream = stream
        self._batch, self._piece = f"{subject}.batch", f"{subject}.piece"
        self._timeout_s = timeout_s
        self._consumer: JetStreamContext.PullSubscription | None = None
        self._next = 0

    async def append(self, expected: int, record: Record) -> Outcome:
        """Append a record in as many messages as it takes."""
        content = record.lines + record.bodies
        size = self._client.max_payload - _HEADERS_MAX_BYTES
        parts = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
        for number, part in enumerate(parts[:-1]):
            outcome = await self._publish(
                self._piece, expected + number, part, {PIECE_HEADER: record.header.hash}
            )
            if not isinstance(outcome, Appended):
                return outcome
        stored = _Stored(record.header, len(record.lines), len(record.bodies), len(parts) - 1)
        headers = {RECORD_HEADER: msgspec.json.encode(stored).decode()}
        return await self._publish(self._batch, expected + len(parts) - 1, parts[-1], headers)

    async def read(self, after: int, wait_s: float = 0.0) -> list[Entry]:
        """Return the next records, through a consumer that is kept between calls."""
        if not wait_s and await self._retried(self._last_sequence) <= after:
            return []
        try:
            messages = await self._fetch(after, wait_s or self._timeout_s)
            if not messages and not wait_s:  # a gap, or no answer
                await self._drop_consumer()
                messages = await self._fetch(after, self._timeout_s)
        except _TRANSIENT as problem:
            await self._drop_consumer()
            if getattr(problem, "err_code", None) == _STREAM_NOT_FOUND:
                raise self._gone() from None
            raise LogUnavailable(f"the stream {self._stream} cannot be read: {problem}") from None
        if not messages and not wait_s:
            raise LogUnavailable(
                f"the stream {self._stream} did not return its messages after {after:,}: check"
                " that its servers are running and can reach each other"
            )
        entries = self._records(after, messages)
        if entries and entries[-1].position != _sequence(messages[-1]):
            await self._drop_consumer()  # the rest is read again with the record it belongs to
        return entries

    async def tail(self) -> Tail:
        """Return the last sequence of the stream, and the header of its last record."""
        position = await self._retried(self._last_sequence)
        if not position:
            return Tail(0, None)
        try:
            message = await self._retried(
                lambda: self._jetstream.get_msg(self._stream, subject=self._batch)
            )
        except nats.js.errors.NotFoundError:
            return Tail(position, None)
        stored = self._decode((message.headers or {}).get(RECORD_HEADER, ""), message.seq or 0)
        return Tail(max(position, message.seq or 0), stored.header)

    async def close(self) -> None:
        """Delete the consumer, if there is a server to ask."""
        consumer = self._consumer
        await self._drop_consumer()
        if consumer is not None:
            await delete_consumer(self._jetstream, self._stream, consumer)

    async def _publish(
        self, subject: str, expected: int, part: bytes, headers: dict[str, str]
    ) -> Outcome:
        headers["Nats-Expected-Stream"] = self._stream
        headers["Nats-Expected-Last-Sequence"] = str(expected)
        try:
            confirmed = await self._jetstream.publish(
                subject, part, timeout=self._timeout_s, headers=headers
            )
        except nats.js.errors.APIError as problem:
            return await self._rejected(problem)
        except nats.errors.MaxPayloadError:
            raise LogUnusable(
                f"a batch of {len(part):,} bytes is larger than the messages of the NATS server:"
                " all servers need the same max_payload"
            ) from None
        except _TRANSIENT as problem:
            return Unknown(f"{type(problem).__name__}: {problem}")
        return Appended(confirmed.seq)

    async def _rejected(self, problem: nats.js.errors.APIError) -> Outcome:
        """Return what a rejection by the server means; raise if it is for good."""
        code = problem.err_code
        if code in _WRONG_LAST_SEQUENCE:
            text = str(problem.description or "")
            last = text.rpartition(" ")[2]
            return Conflict(int(last) if last.isdigit() else 0)
        if code in _FULL:
            raise LogUnusable(
                f"the stream {self._stream} is full ({problem.description}): raise its max_bytes,"
                " or the storage that JetStream may use, then start the node again"
            )
        if code in _NEVER:
            raise LogUnusable(
                f"the stream {self._stream} rejects a batch ({problem.description}): check that no"
                " one has changed its settings"
            )
        return Unknown(f"{code}: {problem.description}")

    async def _fetch(self, after: int, wait_s: float) -> list[Msg]:
        """Return messages after a sequence, with no gap between them."""
        if self._next != after + 1:
            await self._drop_consumer()
        is_new = self._consumer is None
        if self._consumer is None:
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=after + 1,
                ack_policy=AckPolicy.NONE,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=10 * self._timeout_s,
            )
            self._consumer = await self._jetstream.pull_subscribe(
                "", stream=self._stream, config=config
            )
        messages = await _fetched(self._consumer, _RECORDS_PER_FETCH, wait_s)
        found: list[Msg] = []
        # A new consumer begins with what the stream still has; afterwards, what is missing was
        # sent into a connection that was lost, and is not sent again.
        expected = _sequence(messages[0]) if is_new and messages else after + 1
        for message in messages:
            if _sequence(message) != expected:
                return await self._up_to_gap(found)
            found.append(message)
            expected += 1
        while found and found[-1].subject == self._piece:
            rest = await _fetched(self._consumer, 1, _PIECE_WAIT_S)
            if not rest:
                break  # its record was never appended
            if _sequence(rest[0]) != expected:
                return await self._up_to_gap(found)
            found += rest
            expected += 1
        self._next = _sequence(found[-1]) + 1 if found else after + 1
        return found

    async def _up_to_gap(self, found: list[Msg]) -> list[Msg]:
        """Return `found`; a new consumer reads what follows."""
        await self._drop_consumer()
        return found

    def _records(self, after: int, messages: Sequence[Msg]) -> list[Entry]:
        """Put the pieces of each record together."""
        entries: list[Entry] = []
        for at, message in enumerate(messages):
            if message.subject != self._batch:
                continue
            sequence = _sequence(message)
            text = (message.headers or {}).get(RECORD_HEADER, "")
            stored = self._decode(text, sequence)
            parts = messages[max(0, at - stored.pieces) : at + 1]
            content = b"".join(part.data for part in parts)
            if len(parts) <= stored.pieces and sequence - stored.pieces <= after:
                continue  # it began before `after`: the oldest pieces are past retention
            if len(content) != stored.lines + stored.bodies:
                raise LogUnusable(
                    f"message {sequence:,} of the stream {self._stream} is incomplete: it has"
                    f" {len(content):,} of {stored.lines + stored.bodies:,} bytes"
                )
            record = Record(stored.header, content[: stored.lines], content[stored.lines :])
            entries.append(Entry(sequence, record))
        return entries

    def _decode(self, text: str, sequence: int) -> _Stored:
        try:
            return msgspec.json.decode(text, type=_Stored)
        except msgspec.MsgspecError:
            raise LogUnusable(
                f"message {sequence:,} of the stream {self._stream} was not written by Waypost:"
                f" let no one else publish to {self._batch}"
            ) from None

    async def _last_sequence(self) -> int:
        info = await self._jetstream.stream_info(self._stream)
        return int(info.state.last_seq)

    async def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, for as long as servers may elect a leader.

        A server that has lost its leader does not answer, so each request waits for a part of it.
        """
        patience_s = _QUESTION_TIMEOUTS * self._timeout_s
        until = time.monotonic() + patience_s
        while True:
            try:
                async with asyncio.timeout(self._timeout_s / _ATTEMPTS):
                    return await ask()
            except nats.js.errors.NotFoundError as problem:
                if problem.err_code == _STREAM_NOT_FOUND:
                    raise self._gone() from None
                raise
            except _TRANSIENT as problem:
                if time.monotonic() >= until or self._client.is_closed:
                    raise LogUnavailable(
                        f"the stream {self._stream} did not answer within {patience_s:g} s"
                        f" ({type(problem).__name__}): check that its servers are running and can"
                        " reach each other"
                    ) from None
            await asyncio.sleep(_RETRY_S)

    def _gone(self) -> LogUnusable:
        return LogUnusable(
            f"the stream {self._stream} does not exist: it was deleted, or this is another NATS"
            " system; if it was deleted, 'waypost cluster repair --refill' fills it again from the"
            " node with the longest journal"
        )

    async def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                await consumer.unsubscribe()
            except _TRANSIENT:
                pass  # the server deletes it when it was not used for a while


async def delete_consumer(
    jetstream: JetStreamContext,
    stream: str,
    subscription: JetStreamContext.PullSubscription | JetStreamContext.PushSubscription,
) -> None:
    """Delete the consumer of a subscription that has ended, if a server answers.

    The library leaves it to the servers, which allow a stream a limited number of consumers.
    """
    with suppress(*_TRANSIENT):
        async with asyncio.timeout(_DELETE_S):
            name = (await subscription.consumer_info()).name
            await jetstream.delete_consumer(stream, name)


async def _fetched(
    consumer: JetStreamContext.PullSubscription, limit: int, wait_s: float
) -> list[Msg]:
    try:
        return await consumer.fetch(limit, timeout=wait_s)
    except TimeoutError:
        return []


def _sequence(message: Msg) -> int:
    return int(message.metadata.sequence.stream)
