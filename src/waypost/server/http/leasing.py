"""Handing out what waits in a mailbox to a request, which may wait for it and may go away.

Rule 1  One answer holds at most `answer_max_bytes` of messages, or else one message.
Rule 2  A caller that went away while waiting takes nothing: what was just claimed for it waits
        again at once.
"""

import asyncio
from collections.abc import Iterator

from starlette.requests import Request

from waypost.relay.errors import RelayError, UnknownEndpoint
from waypost.relay.relay import Relay
from waypost.relay.state.mailbox import Message
from waypost.wire.envelopes import Envelope
from waypost.wire.http_bodies import Delivered, LeaseRequest


def require_mailbox(relay: Relay, subject: str) -> None:
    """Raise `UnknownEndpoint` unless there is, or was, a mailbox of `subject`."""
    if subject not in relay.parts.ledger.state.mailboxes:
        raise UnknownEndpoint(subject)


async def lease_now(relay: Relay, asked: LeaseRequest, bytes_max: int) -> list[Delivered]:
    """What waits, without waiting for more."""
    limit = _fitting(relay, asked, bytes_max)
    return _with_parents(
        relay, asked, await relay.lease(asked.subject, limit, asked.max_size_bytes)
    )


async def lease_waiting(
    relay: Relay, asked: LeaseRequest, bytes_max: int, wait_s: float, request: Request
) -> list[Delivered]:
    """What waits, or what comes within `wait_s`; nothing if the caller goes away meanwhile."""
    got = await lease_now(relay, asked, bytes_max)
    if got or not wait_s:
        return got
    waiting = asyncio.ensure_future(
        relay.lease(asked.subject, 1, asked.max_size_bytes, wait_s)  # the rest follows it
    )
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            await _give_back(relay, asked.subject, waiting)
            return []
        first = await waiting
    finally:
        for task in (waiting, gone):
            task.cancel()
    if not first:
        return []
    got = _with_parents(relay, asked, first)
    left = bytes_max - sum(one.size for one in _live(relay, asked.subject, first))
    if asked.limit == 1 or left <= 0:
        return got
    more = LeaseRequest(
        subject=asked.subject, limit=asked.limit - 1, max_size_bytes=asked.max_size_bytes
    )
    if not _fitting(relay, more, left, at_least=0):
        return got
    return got + await lease_now(relay, more, left)


def _fitting(relay: Relay, asked: LeaseRequest, bytes_max: int, at_least: int = 1) -> int:
    """How many of the messages that wait fit into `bytes_max`, in order."""
    mailbox = relay.parts.leases.mailbox(asked.subject)
    count, left = 0, bytes_max
    for message in mailbox.pending():
        if asked.max_size_bytes is not None and message.size > asked.max_size_bytes:
            continue
        left -= message.size
        if left < 0 or count == asked.limit:
            return max(at_least, count)
        count += 1
    return asked.limit


def _with_parents(relay: Relay, asked: LeaseRequest, taken: list[Envelope]) -> list[Delivered]:
    live = relay.parts.ledger.state.mailboxes[asked.subject].live
    return [
        Delivered(
            id=envelope.id,
            subject=envelope.subject,
            sender=envelope.sender,
            reply_to=envelope.reply_to,
            budget=envelope.budget,
            created_at=envelope.created_at,
            payload=envelope.payload,
            parent=_parent(relay, live.get(envelope.id)),
        )
        for envelope in taken
    ]


def _parent(relay: Relay, message: Message | None) -> str | None:
    try:
        return None if message is None else relay.parts.payloads.parent_id(message)
    except (RelayError, OSError):
        return None  # its payload was readable a moment ago; who it follows from can be missed


def _live(relay: Relay, subject: str, taken: list[Envelope]) -> Iterator[Message]:
    live = relay.parts.ledger.state.mailboxes[subject].live
    return (live[envelope.id] for envelope in taken if envelope.id in live)


async def _gone(request: Request) -> None:
    """Returns when the caller has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _give_back(relay: Relay, subject: str, waiting: "asyncio.Future[list[Envelope]]") -> None:
    if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
        taken = waiting.result()
        if taken:
            await relay.nack(subject, [envelope.id for envelope in taken])
