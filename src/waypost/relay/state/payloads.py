"""Payloads and envelopes of stored messages, from a cache or from the journal."""

import os
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.files import is_transient
from waypost.policy.bounds import payloads_in_memory_max_bytes
from waypost.policy.budgets import spend
from waypost.relay.errors import RelayError
from waypost.relay.journal.segments import Location, bodies_path, decode_line, segment_path
from waypost.relay.state.mailbox import Message
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.events import Accepted, AnyEvent, Forwarded, Rejected

_OPEN_FILES_MAX = 16
_FLAGS = os.O_RDONLY | os.O_CLOEXEC


class PayloadStore:
    """Reads payloads from the journal; events after `committed_seq()` are only in the cache."""

    def __init__(self, directory: Path, committed_seq: Callable[[], int] = lambda: 0) -> None:
        self._directory = directory
        self._committed_seq = committed_seq
        self._cached: deque[Message] = deque()
        self._cached_bytes = 0
        # Never empty, so that there is always a descriptor to use again.
        self._files: dict[Path, int] = {directory: os.open(directory, _FLAGS)}

    def cache(self, message: Message, event: Accepted | Rejected, content: bytes) -> None:
        """Cache the arrival and the payload of a message just stored."""
        message.arrival, message.content = event, content
        cached = self._cached
        cached.append(message)
        self._cached_bytes += message.size
        while cached[0].arrival is None or (
            self._cached_bytes > payloads_in_memory_max_bytes
            and cached[0].order <= self._committed_seq()  # otherwise it is only here
        ):
            oldest = cached.popleft()
            oldest.arrival = oldest.content = None
            self._cached_bytes -= oldest.size

    def stored_envelope(self, message: Message) -> Envelope:
        """Return the envelope as its file has it, with its payload as raw JSON."""
        event, content = self.read(message)
        return file_envelope(event, msgspec.Raw(content))

    def read(self, message: Message) -> tuple[Accepted | Rejected, bytes]:
        """Return the arrival of a message, and its payload as JSON."""
        event, content = message.arrival, message.content
        if event is not None and content is not None:
            return event, content
        event = self.read_arrival(message.location)
        return event, self._payload(event, message.location.segment)

    def read_problem(self, message: Message) -> str:
        """Return why a message cannot be read; empty if it can."""
        try:
            self.stored_envelope(message)
        except (RelayError, OSError) as problem:
            return str(problem)
        return ""

    def decoded_envelope(self, message: Message) -> Envelope:
        """Return the envelope with its payload decoded; each call decodes a new object."""
        event, content = self.read(message)
        return envelope_of(event, msgspec.json.decode(content), message.attempt or 1)

    def read_arrival(self, location: Location) -> Accepted | Rejected:
        """Read the arrival event at `location`."""
        event = self._read_event(location)
        if not isinstance(event, Accepted | Rejected):
            raise _damaged(location)
        return event

    def _read_event(self, location: Location) -> AnyEvent:
        line = self._read(self._segment_file(location.segment), location.offset, location.length)
        try:
            return decode_line(line)
        except msgspec.DecodeError:
            raise _damaged(location) from None

    def read_forwarded(self, message: Message) -> Forwarded:
        """Return a message of an outbox as its line has it, with its payload."""
        event = self._read_event(message.location)
        if not isinstance(event, Forwarded):
            raise _damaged(message.location)
        payload = self._payload(event, message.location.segment)
        return msgspec.structs.replace(event, payload=msgspec.Raw(payload), body=None)

    def close(self) -> None:
        """Close the open files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _payload(self, event: Accepted | Rejected | Forwarded, segment: int) -> bytes:
        if event.body is None:
            return b"" if event.payload is msgspec.UNSET else bytes(event.payload)
        body = event.body
        raw = self._read(bodies_path(self._directory, segment), body.offset, body.length)
        if zlib.crc32(raw) != body.crc:
            raise RelayError(f"payload of {event.id} damaged in the journal's body file")
        return raw

    def _segment_file(self, segment: int) -> Path:
        path = segment_path(self._directory, segment, sealed=True)
        return path if path.exists() else segment_path(self._directory, segment, sealed=False)

    def _read(self, path: Path, offset: int, length: int) -> bytes:
        descriptor = self._files.get(path)
        if descriptor is None:
            if len(self._files) >= _OPEN_FILES_MAX:
                self._close_oldest()
            descriptor = self._files[path] = self._open(path)
        return os.pread(descriptor, length, offset)

    def _open(self, path: Path) -> int:
        """Open a file; if the process has no descriptor left, in place of another open file."""
        try:
            return os.open(path, _FLAGS)
        except OSError as problem:
            if not is_transient(problem) or not self._files:
                raise
        self._close_oldest()
        return os.open(path, _FLAGS)

    def _close_oldest(self) -> None:
        os.close(self._files.pop(next(iter(self._files))))


def _damaged(location: Location) -> RelayError:
    return RelayError(f"journal damaged at byte {location.offset} of segment {location.segment}")


def envelope_of(event: Accepted | Rejected, payload: object, attempt: int = 1) -> Envelope:
    """Return the envelope of an arrival, with the budget left after its delivery."""
    return _envelope(event, payload, event.thread or event.id, attempt)


def file_envelope(event: Accepted | Rejected, payload: object) -> Envelope:
    """Return the envelope of an arrival as its file has it: without a thread that is its own id."""
    return _envelope(event, payload, event.thread, 1)


def _envelope(event: Accepted | Rejected, payload: object, thread: str, attempt: int) -> Envelope:
    return Envelope(
        id=event.id,
        subject=event.subject,
        sender=event.sender,
        reply_to=event.reply_to,
        thread=thread,
        answer=event.answer,
        attempt=attempt,
        budget=spend(event.budget, event.endpoint, answer=event.answer),
        created_at=instant(event.at_us),
        payload=payload,
    )
