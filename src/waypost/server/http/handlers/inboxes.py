"""Reading inboxes by lease, and acknowledging messages.

Rule 1  One answer holds at most `answer_max_bytes` of messages, or else one message.
Rule 2  A caller that disconnects while waiting gets no messages: those just leased for it are
        released at once.
Rule 3  So it is for a caller whose name went to another key while it was waiting.
Rule 4  A key may read the inboxes of all its names with the token of any of them.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec
from starlette.requests import Request

from waypost.policy.bounds import error_max_chars
from waypost.policy.subjects import validate_subject
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.relay import LeasedMessage, Relay
from waypost.server.context import ServerContext
from waypost.server.http.callers import Access, Caller, unauthorised
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    NoParameters,
    Operation,
    Reply,
    json_body,
)
from waypost.server.http.errors import HttpError
from waypost.wire.envelopes import Envelope
from waypost.wire.http_bodies import (
    INBOX_WAIT_MAX_S,
    AckRequest,
    CountResponse,
    Delivered,
    ExtendRequest,
    LeasedInbox,
    LeasedInboxes,
    LeaseManyRequest,
    LeaseRequest,
    Limit,
    NackRequest,
    Number,
    SubjectText,
)


class PeekedInbox(msgspec.Struct, kw_only=True):
    """Pending messages, the oldest first, and how many are `pending` and `leased` in all.

    `unreadable` lists messages with a damaged payload, each with the damage.
    """

    subject: str
    messages: list[Delivered]
    pending: int
    leased: int
    unreadable: list[str] = []


class InboxRead(msgspec.Struct, forbid_unknown_fields=True):
    """The inbox to read, and the limits of one read."""

    subject: SubjectText
    limit: Limit | msgspec.UnsetType = msgspec.UNSET
    max_size_bytes: Number | msgspec.UnsetType = msgspec.UNSET
    wait: Annotated[float, msgspec.Meta(ge=0, le=INBOX_WAIT_MAX_S)] = 0.0


class InboxPeek(msgspec.Struct, forbid_unknown_fields=True):
    """The inbox to look into, and the limits of one look."""

    subject: SubjectText
    limit: Limit | msgspec.UnsetType = msgspec.UNSET
    max_size_bytes: Number | msgspec.UnsetType = msgspec.UNSET


class InboxPath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject of an inbox."""

    subject: SubjectText


async def read_inbox(call: Call[InboxRead, None]) -> Reply:
    """Lease messages; wait for the first if there are none."""
    context, query = call.context, call.parameters
    _admit(context, call.caller, query.subject, query.wait)
    lease = LeaseRequest(
        subject=query.subject,
        limit=context.options.batch if query.limit is msgspec.UNSET else query.limit,
        max_size_bytes=None if query.max_size_bytes is msgspec.UNSET else query.max_size_bytes,
    )
    max_bytes = context.options.answer_max_bytes
    owner = context.authenticator.key_of(query.subject)
    leased = await _lease(context.relay, lease, max_bytes)
    if not leased and query.wait:
        leased = await _lease_waiting(context.relay, lease, max_bytes, query.wait, call.request)
    if not call.caller.is_operator and context.authenticator.key_of(query.subject) != owner:
        await context.relay.nack(query.subject, [one.envelope.id for one in leased])
        raise unauthorised("this name went to another key while you were waiting")
    return Reply(_inbox(query.subject, leased))


async def read_inboxes(call: Call[NoParameters, LeaseManyRequest]) -> Reply:
    """Lease from several inboxes; if one is forbidden, none is read."""
    context = call.context
    for lease in call.body.inboxes:
        _admit(context, call.caller, lease.subject)
    left, read = context.options.answer_max_bytes, []
    for lease in call.body.inboxes:
        leased = await _lease(context.relay, lease, left) if left > 0 else []
        left -= sum(one.size for one in leased)
        read.append(_inbox(lease.subject, leased))
    return Reply(LeasedInboxes(inboxes=read))


async def peek_inbox(call: Call[InboxPeek, None]) -> Reply:
    """Return pending messages; lease none."""
    context, query = call.context, call.parameters
    _require_owner(context, call.caller, query.subject)
    _open_inbox(context, call.caller, query.subject)
    found = context.relay.inspect().peek(
        query.subject,
        context.options.batch if query.limit is msgspec.UNSET else query.limit,
        None if query.max_size_bytes is msgspec.UNSET else query.max_size_bytes,
        context.options.answer_max_bytes,
    )
    return Reply(
        PeekedInbox(
            subject=query.subject,
            messages=[_delivered(one.envelope, one.parent) for one in found.messages],
            pending=found.pending,
            leased=found.leased,
            unreadable=found.unreadable,
        )
    )


async def ack(call: Call[InboxPath, AckRequest]) -> Reply:
    """Acknowledge messages; their senders get receipts."""
    subject, relay = call.parameters.subject, call.context.relay
    _require(call.context, call.caller, subject)
    acked = relay.claims.ack(subject, call.body.ids)
    relay.inspect().parents.remember(acked)
    # Before the sync: acknowledgements and receipts belong to one commit.
    call.context.hub.confirm(subject, [(one.id, one.sender, one.order) for one in acked])
    await relay.sync()
    return Reply(CountResponse(count=len(acked)))


async def nack(call: Call[InboxPath, NackRequest]) -> Reply:
    """Return messages to the queue."""
    subject, relay = call.parameters.subject, call.context.relay
    _require(call.context, call.caller, subject)
    body = call.body
    if body.release:
        returned = relay.claims.release(subject, body.ids, body.delay)
    else:
        returned = relay.claims.nack(subject, body.ids, body.delay, body.error)
    await relay.sync()
    return Reply(CountResponse(count=len(returned)))


async def extend(call: Call[InboxPath, ExtendRequest]) -> Reply:
    """Extend leases."""
    subject, relay = call.parameters.subject, call.context.relay
    _require(call.context, call.caller, subject)
    return Reply(CountResponse(count=await relay.extend(subject, call.body.ids, call.body.seconds)))


async def _lease(
    relay: Relay, lease: LeaseRequest, max_bytes: int, wait_s: float = 0.0
) -> list[LeasedMessage]:
    return await relay.lease_messages(
        lease.subject, lease.limit, lease.max_size_bytes, wait_s, max_bytes
    )


async def _lease_waiting(
    relay: Relay, lease: LeaseRequest, max_bytes: int, wait_s: float, request: Request
) -> list[LeasedMessage]:
    """Lease what arrives within `wait_s`; nothing if the caller disconnects before that."""
    waiting = asyncio.ensure_future(_lease(relay, lease, max_bytes, wait_s))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            await _release(relay, lease.subject, waiting)
            return []
        return await waiting
    finally:
        for task in (waiting, gone):
            task.cancel()


async def _disconnected(request: Request) -> None:
    """Return once the caller has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _release(
    relay: Relay, subject: str, waiting: "asyncio.Future[list[LeasedMessage]]"
) -> None:
    if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
        leased = waiting.result()
        if leased:
            relay.claims.release(subject, [one.envelope.id for one in leased])
            await relay.sync()


def _inbox(subject: str, leased: Iterable[LeasedMessage]) -> LeasedInbox:
    return LeasedInbox(
        subject=subject, messages=[_delivered(one.envelope, one.parent) for one in leased]
    )


def _delivered(envelope: Envelope, parent: str | None) -> Delivered:
    return Delivered(
        id=envelope.id,
        subject=envelope.subject,
        sender=envelope.sender,
        reply_to=envelope.reply_to,
        thread=envelope.thread,
        answer=envelope.answer,
        attempt=envelope.attempt,
        budget=envelope.budget,
        created_at=envelope.created_at,
        payload=envelope.payload,
        parent=parent,
    )


def _require_owner(context: ServerContext, caller: Caller, subject: str) -> None:
    """Check that `subject` is a name of the caller's key, by the bindings of the relay."""
    validate_subject(subject)
    if not caller.is_operator and context.authenticator.have_same_owner(caller.subject, subject):
        return
    caller.require(subject)


def _require(context: ServerContext, caller: Caller, subject: str) -> None:
    _require_owner(context, caller, subject)
    _require_mailbox(context.relay, subject)


def _admit(context: ServerContext, caller: Caller, subject: str, wait_s: float = 0.0) -> None:
    """Check that the caller may lease from `subject` now; create the mailbox of an agent."""
    _require_owner(context, caller, subject)
    if context.hub.receives_pushes(subject):
        raise HttpError(409, f"{subject} is connected: its messages are delivered there")
    _open_inbox(context, caller, subject, wait_s)


def _open_inbox(context: ServerContext, caller: Caller, subject: str, wait_s: float = 0.0) -> None:
    """Create the mailbox of an agent that reads, and record the read; or require one."""
    if not caller.is_operator:
        context.mailboxes.open_for(subject)
        context.hub.note_read(subject, wait_s)
    _require_mailbox(context.relay, subject)


def _require_mailbox(relay: Relay, subject: str) -> None:
    if not relay.inspect().has_mailbox(subject):
        raise UnknownEndpoint(subject)


_FORBIDDEN = "The inbox belongs to another agent."
_CONNECTED = "The agent is connected and gets its messages there."

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/inbox/batch",
        access=Access.AGENT,
        summary="Read several inboxes",
        description=(
            "Leases messages from each, without waiting. An agent may name all inboxes whose"
            " subjects belong to its key."
        ),
        tag="inboxes",
        handler=read_inboxes,
        parameters=NoParameters,
        body=json_body(LeaseManyRequest),
        answer=Answer(LeasedInboxes),
        rejections={403: _FORBIDDEN, 404: "No such mailbox.", 409: _CONNECTED},
    ),
    Operation(
        method="GET",
        path="/v1/inbox/{subject}",
        access=Access.AGENT,
        summary="Read an inbox",
        description=(
            "Leases up to `limit` messages, the oldest first, none larger than `max_size_bytes`."
            f" Waits up to `wait` seconds (at most {INBOX_WAIT_MAX_S}) for the first. A message"
            " that is not acknowledged in time becomes pending again, with the same id."
        ),
        tag="inboxes",
        handler=read_inbox,
        parameters=InboxRead,
        body=NO_BODY,
        answer=Answer(LeasedInbox),
        rejections={403: _FORBIDDEN, 409: _CONNECTED},
    ),
    Operation(
        method="GET",
        path="/v1/inbox/{subject}/peek",
        access=Access.AGENT,
        summary="Look into an inbox",
        description=(
            "Returns up to `limit` pending messages, the oldest first, none larger than"
            " `max_size_bytes`. Leases none, and counts as no delivery."
        ),
        tag="inboxes",
        handler=peek_inbox,
        parameters=InboxPeek,
        body=NO_BODY,
        answer=Answer(PeekedInbox),
        rejections={403: _FORBIDDEN},
    ),
    Operation(
        method="POST",
        path="/v1/inbox/{subject}/ack",
        access=Access.AGENT,
        summary="Acknowledge messages",
        description="Removes them from the mailbox; on disk when the response arrives.",
        tag="inboxes",
        handler=ack,
        parameters=InboxPath,
        body=json_body(AckRequest),
        answer=Answer(CountResponse, "The number of messages that were still there."),
        rejections={403: _FORBIDDEN},
    ),
    Operation(
        method="POST",
        path="/v1/inbox/{subject}/nack",
        access=Access.AGENT,
        summary="Return messages to the queue",
        description=(
            "They become pending again after `delay` seconds, or later if they were delivered"
            " repeatedly; after too many deliveries they become dead letters, which name the"
            f" `error`. It is cut to {error_max_chars} characters. With `release`, the delivery"
            " does not count."
        ),
        tag="inboxes",
        handler=nack,
        parameters=InboxPath,
        body=json_body(NackRequest),
        answer=Answer(CountResponse, "The number of messages that were leased."),
        rejections={403: _FORBIDDEN},
    ),
    Operation(
        method="POST",
        path="/v1/inbox/{subject}/extend",
        access=Access.AGENT,
        summary="Extend leases",
        description=(
            "The messages stay leased for `seconds` from now on, at the earliest. A lease is never"
            " shortened. Call it again before it ends, as often as needed."
        ),
        tag="inboxes",
        handler=extend,
        parameters=InboxPath,
        body=json_body(ExtendRequest),
        answer=Answer(CountResponse, "The number of messages that are leased."),
        rejections={403: _FORBIDDEN},
    ),
)
