"""The history of one message, read from the journal."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.journal.segments import (
    Batch,
    last_commit,
    list_segments,
    read_segment,
    segment_bytes,
)
from waypost.wire.envelopes import instant
from waypost.wire.events import Accepted, AnyEvent, Commit, Rejected
from waypost.wire.identifiers import ulid_time_ms

_CLOCK_SLACK_MS = 24 * 3_600_000
"""Ids contain the time of the relay's clock, which may have been set back since."""


Segments = list[tuple[int, Path]]


class HistoryEntry(msgspec.Struct, frozen=True):
    """One event of the message's history; `text` is its description."""

    at_us: int
    seq: int
    kind: str
    endpoint: str
    text: str


class MessageHistory(msgspec.Struct, frozen=True):
    """The history of one message; `steps` is empty if the journal has no event of it."""

    message_id: str
    steps: list[HistoryEntry]


def read_history(directory: Path, message_id: str) -> MessageHistory:
    """Read the history of `message_id` from the journal in `directory`."""
    steps = [step for event in find_events(directory, message_id) for step in _steps(event)]
    return MessageHistory(message_id, steps)


def find_events(directory: Path, message_id: str) -> Iterator[AnyEvent]:
    """Yield the committed events of one message, in order."""
    segments = list(list_segments(directory).items())
    since = _since(segments, ulid_time_ms(message_id))
    found = False
    for event in _search(since, message_id):
        found = True
        yield event
    if not found:  # an id chosen by its sender may contain a time in the future
        yield from _search([one for one in segments if one not in since], message_id)


def _search(segments: Segments, message_id: str) -> Iterator[AnyEvent]:
    needle = b'"id":"' + message_id.encode(errors="surrogateescape") + b'"'
    for first_seq, path in segments:
        try:
            found = needle in segment_bytes(path)
            pieces = list(read_segment(path, first_seq)) if found else []
        except FileNotFoundError:
            continue  # deleted since the list was made
        for piece in pieces:
            if isinstance(piece, Batch) and piece.data.find(needle, piece.start, piece.stop) >= 0:
                for event, _ in piece.events():
                    if getattr(event, "id", None) == message_id:
                        yield event


def _since(segments: Segments, created_ms: int | None) -> Segments:
    """Return the segments that may hold events of a message created at `created_ms`."""
    if created_ms is None:
        return segments
    cutoff_us = (created_ms - _CLOCK_SLACK_MS) * 1000
    ends = ((first, path, _last_commit(path)) for first, path in segments)
    return [(first, path) for first, path, end in ends if end is None or end.at_us >= cutoff_us]


def _last_commit(path: Path) -> Commit | None:
    try:
        return last_commit(path)
    except FileNotFoundError:
        return None  # sealed or deleted since the list was made


def _steps(event: AnyEvent) -> Iterator[HistoryEntry]:
    kind = str(type(event).__struct_config__.tag)
    endpoint = getattr(event, "endpoint", "")
    if isinstance(event, Accepted | Rejected):
        for text in _checks(event):
            yield HistoryEntry(event.at_us, event.seq, "check", endpoint, text)
    yield HistoryEntry(event.at_us, event.seq, kind, endpoint, _describe(event))


def _checks(event: Accepted | Rejected) -> Iterator[str]:
    """Yield the result of each check that was made, in the order of admission."""
    reason = str(event.reason) if isinstance(event, Rejected) else ""
    verdict = {name: "rejected" if name == reason else "passed" for name in _CHECKS}
    if event.rate_limit:
        usage = f"{event.rate_count}/{event.rate_limit} in the sender's window"
        yield f"rate limit {verdict['rate_limited']}: {usage}"
    if reason == "rate_limited" or not event.endpoint:
        return
    if event.depth_max:
        weight = f", {event.depth_bytes:,} bytes" if event.depth_bytes else ""
        room = f"{event.depth}/{event.depth_max} in the mailbox{weight}"
        yield f"backpressure {verdict['backpressure']}: {room}"
    if reason == "backpressure":
        return
    if event.quota_count or event.quota_bytes or reason == "quota_exceeded":
        held = f"{event.quota_count} messages, {event.quota_bytes:,} bytes already in this inbox"
        yield f"quota of tier {event.tier} {verdict['quota_exceeded']}: {held}"
    if reason == "quota_exceeded":
        return
    yield f"circuit breaker {verdict['circuit_open']}: {event.breaker}"
    if reason == "circuit_open":
        return
    budget = event.budget
    yield (
        f"budget {verdict['budget_exceeded']}: hop {budget.hop_count} of {budget.max_hops},"
        f" {budget.call_budget_remaining} calls left,"
        f" expires {_date(budget.ttl)}"
    )


def _date(at_ms: int) -> str:
    try:
        return f"{instant(at_ms * 1000):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return "after the year 9999"


_CHECKS = ("rate_limited", "backpressure", "quota_exceeded", "circuit_open", "budget_exceeded")

_TEXTS = {
    "leased": "delivered, attempt {attempt}, via {via}",
    "acked": "acknowledged via {via}",
    "returned": "returned to the queue: {reason}",
    "failed": "dead letter: {reason}",
    "expired": "removed ({was}): {reason}",
    "evicted": "dead letter: {reason}",
    "redriven": "redriven to its mailbox",
}


def _describe(event: AnyEvent) -> str:
    if isinstance(event, Accepted):
        where = f"stored, {event.size:,} bytes" if event.endpoint else "no recipient"
        return f"{event.sender} -> {event.subject}: {where}"
    if isinstance(event, Rejected):
        more = f" ({event.count} similar)" if event.count > 1 else ""
        return f"{event.sender} -> {event.subject}: {event.reason}: {event.detail}{more}"
    template = _TEXTS.get(str(type(event).__struct_config__.tag), "")
    return template.format(**msgspec.structs.asdict(event))
