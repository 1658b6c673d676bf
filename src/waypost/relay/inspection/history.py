"""The history of one message: every check and every transition, from the journal.

Deliveries that came back are shown one by one if they are few, and else folded into one entry.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from waypost.relay.journal.history import find_events
from waypost.wire.envelopes import instant
from waypost.wire.events import (
    Accepted,
    AnyEvent,
    Decided,
    Forwarded,
    Leased,
    Rejected,
    Returned,
)

ATTEMPTS_SHOWN_MAX = 5
"""As many deliveries in a row that came back are shown one by one."""


class HistoryEntry(msgspec.Struct, frozen=True):
    """One event of the message's history; `text` is its description."""

    at_us: int
    seq: int
    kind: str
    endpoint: str
    text: str


class Attempts(msgspec.Struct, frozen=True):
    """Deliveries of a message at one endpoint that all came back, the last with `reason`.

    `first_us` and `last_us` are the times of the first and the last delivery, `at_us` and `seq`
    those of the last return.
    """

    endpoint: str
    count: int
    first_us: int
    last_us: int
    at_us: int
    seq: int
    reason: str

    @property
    def text(self) -> str:
        """Return how often and when the message was delivered."""
        first, last = _date(self.first_us // 1000), _date(self.last_us // 1000)
        return f"delivered {self.count:,} times between {first} and {last}"


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
    found = fold_attempts(events)
    steps = [step for event in found for step in _steps(event)]
    return MessageHistory(message_id, steps, thread_of(found))


def fold_attempts(events: Iterable[AnyEvent]) -> list[AnyEvent | Attempts]:
    """Return the events of a message with long runs of failed deliveries folded into one each."""
    found: list[AnyEvent | Attempts | None] = list(events)
    runs: dict[str, list[int]] = {}
    for position, event in enumerate(found):
        endpoint = str(getattr(event, "endpoint", ""))
        if isinstance(event, Leased | Returned):
            runs.setdefault(endpoint, []).append(position)
        else:
            _fold(found, runs.pop(endpoint, []))
    for run in runs.values():
        _fold(found, run)
    return [one for one in found if one is not None]


def _fold(found: list[AnyEvent | Attempts | None], run: Sequence[int]) -> None:
    """Replace the positions `run`, up to the last return, by one entry at the last of them."""
    returns = [at for at in run if isinstance(found[at], Returned)]
    if len(returns) <= ATTEMPTS_SHOWN_MAX:
        return
    folded = [at for at in run if at <= returns[-1]]
    leased_us = [one.at_us for at in folded if isinstance(one := found[at], Leased)]
    last = found[returns[-1]]
    assert isinstance(last, Returned)
    for at in folded:
        found[at] = None
    found[returns[-1]] = Attempts(
        last.endpoint,
        len(returns),
        min(leased_us, default=last.at_us),
        max(leased_us, default=last.at_us),
        last.at_us,
        last.seq,
        last.reason,
    )


def arrival_of(events: Iterable[AnyEvent]) -> Accepted | Rejected | None:
    """Return the latest arrival among `events`, None without one."""
    arrivals = [event for event in events if isinstance(event, Accepted | Rejected)]
    return arrivals[-1] if arrivals else None


def thread_of(events: Iterable[AnyEvent | Attempts]) -> str:
    """Return the thread of the latest arrival among `events`; empty if there is none."""
    thread = ""
    for event in events:
        if isinstance(event, Accepted | Rejected):
            thread = event.thread or event.id
    return thread


def _steps(event: AnyEvent | Attempts) -> Iterator[HistoryEntry]:
    if isinstance(event, Attempts):
        error = event.reason.removeprefix("nack").removeprefix(": ")
        text = f"{event.text}; last error: {error}" if error else event.text
        yield HistoryEntry(event.at_us, event.seq, "returned", event.endpoint, text)
        return
    kind = str(type(event).__struct_config__.tag)
    endpoint = getattr(event, "endpoint", "")
    if isinstance(event, Accepted | Rejected | Forwarded):
        for text in _checks(event):
            yield HistoryEntry(event.at_us, event.seq, "check", endpoint, text)
    yield HistoryEntry(event.at_us, event.seq, kind, endpoint, _describe(event))


def _checks(event: Accepted | Rejected | Forwarded) -> Iterator[str]:
    """Yield the result of each check that was made, in the order of admission."""
    reason = str(event.reason) if isinstance(event, Rejected) else ""
    verdict = {name: "rejected" if name == reason else "passed" for name in _CHECKS}
    if event.rate_limit:
        usage = f"{event.rate_count}/{event.rate_limit} in the sender's window"
        yield f"rate limit {verdict['rate_limited']}: {usage}"
    if reason == "rate_limited" or not event.endpoint or isinstance(event, Forwarded):
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
    if isinstance(event, Forwarded):
        return f"{event.sender} -> {event.subject}: forwarded to partition {event.partition}"
    if isinstance(event, Decided):
        reasons = [str(one.reason) for one in event.rejected]
        outcomes = [f"stored in {event.delivered_to}", *reasons]
        return event.error or ", ".join(outcomes)
    if isinstance(event, Accepted):
        where = f"stored, {event.size:,} bytes" if event.endpoint else "no recipient"
        due = f", due at {_date(event.due_us // 1000)}" if event.due_us else ""
        return f"{event.sender} -> {event.subject}: {where}{due}"
    if isinstance(event, Rejected):
        why = event.detail.removeprefix(f"{event.reason}: ")
        more = f" ({event.count} similar)" if event.count > 1 else ""
        return f"{event.sender} -> {event.subject}: {event.reason}: {why}{more}"
    if isinstance(event, Leased) and event.extended:
        return f"lease extended until {_date(event.until_us // 1000)}"
    template = _TEXTS.get(str(type(event).__struct_config__.tag), "")
    return template.format(**msgspec.structs.asdict(event))
