"""Messages in events that the log has lost: read from a node's set-aside files, published again.

Rule 1  A message is published under its own id: a partition that has it, or that decided about it,
        stores it once.
Rule 2  Its rate, access and budget were decided when it was first published. What is decided again
        is what its mailbox allows.
Rule 3  A file is removed once the partitions have stored each of its messages.

Other lost events are not repeated. An acknowledgement that is lost delivers its message again.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from waypost.cluster.copies import lost_files
from waypost.policy.bounds import forward_batch_max_bytes, forward_batch_max_messages
from waypost.policy.partitions import partition_of
from waypost.policy.reserved_names import is_reserved
from waypost.relay.errors import JournalUnreadable
from waypost.relay.journal.segments import bodies_path, decode_line
from waypost.wire.events import (
    Accepted,
    Acked,
    AnyEvent,
    Cancelled,
    Decided,
    Evicted,
    Expired,
    Forwarded,
    split,
)
from waypost.wire.journal_batches import ValidBatch, read_batches
from waypost.wire.outcomes import ForwardOutcome

Gone = Acked | Cancelled | Decided | Evicted | Expired


class Decide(Protocol):
    """Decides about messages: `origin` forwards them to `partition`."""

    async def __call__(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]: ...


class LostMessages(msgspec.Struct, kw_only=True):
    """The pending messages of the lost files of one partition.

    `damaged` are ids whose payload is gone, `expired` those whose time to live is over.
    """

    files: list[Path]
    messages: list[Forwarded] = []
    expired: int = 0
    damaged: list[str] = []


class Republished(msgspec.Struct, kw_only=True):
    """How many messages are stored, and why others are not, by id."""

    stored: int = 0
    rejected: dict[str, str] = {}


def read_lost(journal: Path, partition: int, now_us: int) -> LostMessages:
    """Return the messages of a journal's lost files, as their partitions get them again."""
    found = LostMessages(files=lost_files(journal))
    pending: dict[tuple[str, str], tuple[Accepted | Forwarded, int]] = {}
    for path in found.files:
        if ".jsonl" in path.name:
            segment = int(path.name.partition("-")[0])
            for event in _events(path):
                if isinstance(event, Gone):
                    pending.pop((event.endpoint, event.id), None)
                elif isinstance(event, Accepted | Forwarded) and event.endpoint:
                    pending[event.endpoint, event.id] = event, segment
    seen: set[tuple[str, str, int]] = set()
    for event, segment in pending.values():
        target = event.partition if isinstance(event, Forwarded) else partition
        key = (event.sender, event.id, target)
        if event.budget.ttl * 1000 < now_us:
            found.expired += 1
        elif key not in seen:
            seen.add(key)
            payload = _payload(journal, found.files, event, segment)
            if payload is None:
                found.damaged.append(event.id)
            else:
                found.messages.append(_again(event, target, payload, now_us))
    return found


async def publish_again(
    lost: LostMessages, partition: int, count: int, decide: Decide
) -> Republished:
    """Publish the messages of `partition`, one of `count`, again, in their order.

    Raises what `decide` does; messages that it had decided stay decided.
    """
    done = Republished()
    for batch in _batches(lost.messages, partition, count):
        first = batch[0]
        outcomes = await decide(_origin(first, partition, count), first.partition, batch)
        for message, outcome in zip(batch, outcomes, strict=True):
            if outcome.delivered_to:
                done.stored += 1
            else:
                done.rejected[message.id] = _why(outcome)
    return done


def _events(path: Path) -> Iterator[AnyEvent]:
    data = path.read_bytes()
    for batch in read_batches(data):
        if isinstance(batch, ValidBatch):
            for line in data[batch.start : batch.stop].splitlines():
                try:
                    yield from split(decode_line(line))
                except JournalUnreadable:
                    continue  # of a newer version; the file is kept if a message cannot be read


def _payload(
    journal: Path, files: Sequence[Path], event: Accepted | Forwarded, segment: int
) -> bytes | None:
    """Return the payload of an event; None if no file has it."""
    if event.body is None:
        return bytes(event.payload) if event.payload else None
    begin, length, crc = event.body.offset, event.body.length, event.body.crc
    copies = [(bodies_path(journal, segment), 0)]
    for path in files:
        first, _, rest = path.name.partition("-")
        at, _, kind = rest.partition(".")
        if kind.startswith("bodies") and int(first) == segment:
            copies.append((path, int(at)))
    for path, offset in copies:
        if path.exists() and begin >= offset:
            with path.open("rb") as file:
                file.seek(begin - offset)
                content = file.read(length)
            if len(content) == length and zlib.crc32(content) == crc:
                return content
    return None


def _again(event: Accepted | Forwarded, partition: int, payload: bytes, now_us: int) -> Forwarded:
    """Return an event as a message for `partition`, later than any that it knows of this id."""
    forwarded = event if isinstance(event, Forwarded) else Forwarded.of(event, partition)
    return msgspec.structs.replace(
        forwarded, seq=now_us, payload=msgspec.Raw(payload), body=None, endpoint=""
    )


def _batches(
    messages: Sequence[Forwarded], partition: int, count: int
) -> Iterator[list[Forwarded]]:
    """Yield messages of one way each, as many as are carried at once."""
    batch: list[Forwarded] = []
    size, way = 0, (-1, -1)
    for one in messages:
        own, length = (
            (_origin(one, partition, count), one.partition),
            len(bytes(one.payload or b"")),
        )
        is_full = (
            len(batch) >= forward_batch_max_messages or size + length > forward_batch_max_bytes
        )
        if batch and (own != way or is_full):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size, way = size + length, own
    if batch:
        yield batch


def _origin(message: Forwarded, partition: int, count: int) -> int:
    sender = message.sender
    return partition if is_reserved(sender) else partition_of(sender, count)


def _why(outcome: ForwardOutcome) -> str:
    if outcome.error:
        return outcome.error
    if outcome.rejected:
        first = outcome.rejected[0]
        return f"{first.reason}: {first.detail}" if first.detail else str(first.reason)
    return "no endpoint has its subject any more"
