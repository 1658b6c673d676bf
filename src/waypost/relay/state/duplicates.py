"""First results of publishes with a sender-chosen id, returned when the id is published again."""

import msgspec

from waypost.wire.events import Accepted, Rejected
from waypost.wire.results import PublishResult, Rejection


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The first result of a publish whose sender chose the id, as JSON, and when (µs).

    Hundreds of thousands are in memory: as text they cost the garbage collector nothing.
    """

    at_us: int
    text: str

    def result(self) -> PublishResult:
        """Return the result."""
        return msgspec.json.decode(self.text, type=PublishResult)


def duplicate_key(sender: str, message_id: str) -> str:
    """Return the key of a first result; each sender has its own ids."""
    return f"{sender} {message_id}"


def first_result(
    known: Duplicate | None, event: Accepted | Rejected, endpoint_hash: str
) -> Duplicate:
    """Return the result of a publish so far: that of its earlier parts, and this arrival."""
    result = known.result() if known else PublishResult(message_id=event.id, delivered_to=0)
    result.budget_cut = event.budget_cut
    if event.depth_max:
        result.mailbox_pressure[endpoint_hash] = min(event.depth / event.depth_max, 1.0)
    if isinstance(event, Rejected):
        result.rejected.append(Rejection(endpoint_hash, event.reason, event.detail))
        result.retry_after_ms = max(result.retry_after_ms, event.retry_after_ms)
    elif event.endpoint:
        result.delivered_to += 1
    return Duplicate(event.at_us, msgspec.json.encode(result).decode())
