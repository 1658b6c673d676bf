"""First results of publishes with a sender-chosen id, returned when the id is published again."""

from typing import TypeVar

import msgspec

from waypost.wire.events import Accepted, Decided, Forwarded, Rejected
from waypost.wire.results import PublishResult, Rejection

Result = TypeVar("Result", bound=PublishResult)


class RecordedResult(PublishResult, kw_only=True, gc=False):
    """The result of a message that the partition `origin` forwarded with its line `origin_seq`."""

    origin: int = -1
    origin_seq: int = 0


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The first result of a publish whose sender chose the id, as JSON, and when (µs).

    Hundreds of thousands are in memory: as text they cost the garbage collector nothing.
    """

    at_us: int
    text: str

    def result(self) -> PublishResult:
        """Return the result."""
        return self.read(PublishResult)

    def read(self, kind: type[Result]) -> Result:
        """Return the result as one of this kind."""
        return msgspec.json.decode(self.text, type=kind)


def is_forwarded(text: str) -> bool:
    """Return whether the `text` of a `Duplicate` is the result of a forwarded message."""
    return '"origin_seq":' in text


def duplicate_key(sender: str, message_id: str) -> str:
    """Return the key of a first result; each sender has its own ids."""
    return f"{sender} {message_id}"


def first_result(
    known: Duplicate | None, event: Accepted | Rejected, endpoint_hash: str
) -> Duplicate:
    """Return the result of a publish so far: that of its earlier parts, and this arrival.

    That of a forwarded message is remembered from its expiry on, because it may be forwarded again
    until then.
    """
    known_as = PublishResult if event.origin is None else RecordedResult
    result = known.read(known_as) if known else known_as(message_id=event.id, delivered_to=0)
    at_us = event.at_us
    if isinstance(result, RecordedResult) and event.origin is not None:
        result.origin, result.origin_seq = event.origin, event.origin_seq
        at_us = max(at_us, event.budget.ttl * 1000)
    result.budget_cut = event.budget_cut
    if event.depth_max:
        result.mailbox_pressure[endpoint_hash] = min(event.depth / event.depth_max, 1.0)
    if isinstance(event, Rejected):
        result.rejected.append(Rejection(endpoint_hash, event.reason, event.detail))
        result.retry_after_ms = max(result.retry_after_ms, event.retry_after_ms)
    elif event.endpoint:
        result.delivered_to += 1
    return Duplicate(at_us, msgspec.json.encode(result).decode())


def nothing_yet(event: Forwarded) -> Duplicate:
    """Return the result of a publish that other partitions have yet to decide."""
    result = PublishResult(message_id=event.id, delivered_to=0, budget_cut=event.budget_cut)
    return Duplicate(event.at_us, msgspec.json.encode(result).decode())


def add_decision(known: Duplicate, event: Decided) -> Duplicate:
    """Return the result of a publish so far, and the decision of another partition."""
    result = known.read(RecordedResult)
    result.delivered_to += event.delivered_to
    result.rejected.extend(event.rejected)
    result.retry_after_ms = max(result.retry_after_ms, event.retry_after_ms)
    return Duplicate(event.at_us, msgspec.json.encode(result).decode())
