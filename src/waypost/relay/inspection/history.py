"""The history of one message: every check and every transition, from the journal."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from waypost.relay.journal.history import find_events
from waypost.wire.envelopes import instant
from waypost.wire.events import Accepted, AnyEvent, Rejected


class HistoryEntry(msgspec.Struct, frozen=True):
    """One event of the message's history; `text` is its description."""

    at_us: int
    seq: int
    kind: str
    endpoint: str
    text: str


class MessageHistory(msgspec.Struct, frozen=True):
    """The history of one message; `steps` is empty if the journal has no event of it.

    `thread` is the conversation it belongs to.
    """

    message_id: str
    steps: list[HistoryEntry]
    thread: str = ""


def read_history(directory: Path, message_id: str) -> MessageHistory:
    """Read the history of `message_id` from the journal in `directory`, which may be in use."""
    return describe_history(message_id, find_events(directory, message_id))


def describe_history(message_id: str, events: Iterable[AnyEvent]) -> MessageHistory:
    """Return the history of a message with these events."""
    found = list(events)
    steps = [step for event in found for step in _steps(event)]
    return MessageHistory(message_id, steps, thread_of(found))


def thread_of(events: Iterable[AnyEvent]) -> str:
    """Return the thread of the latest arrival among `events`; empty if there is none."""
    thread = ""
    for event in events:
        if isinstance(event, Accepted | Rejected):
            thread = event.thread or event.id
    return thread


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
    hop = "an answer, back at hop" if event.answer else "hop"
    yield (
        f"budget {verdict['budget_exceeded']}: {hop} {budget.hop_count} of {budget.max_hops},"
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
    "queued": "due, at the end of the queue",
    "cancelled": "cancelled by the {via} before it was due",
}


def _describe(event: AnyEvent) -> str:
    if isinstance(event, Accepted):
        where = f"stored, {event.size:,} bytes" if event.endpoint else "no recipient"
        due = f", due at {_date(event.due_us // 1000)}" if event.due_us else ""
        return f"{event.sender} -> {event.subject}: {where}{due}"
    if isinstance(event, Rejected):
        more = f" ({event.count} similar)" if event.count > 1 else ""
        return f"{event.sender} -> {event.subject}: {event.reason}: {event.detail}{more}"
    template = _TEXTS.get(str(type(event).__struct_config__.tag), "")
    return template.format(**msgspec.structs.asdict(event))
