"""Reading inboxes by lease, and acknowledging messages.

Rule 1  One answer holds at most `answer_max_bytes` of messages, or else one message.
Rule 2  A caller that disconnects while waiting gets no messages: those just leased for it are
        released at once.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec
from starlette.requests import Request

from waypost.policy.subjects import validate_subject
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.relay import LeasedMessage, Relay
from waypost.server.context import ServerContext
from waypost.server.http.callers import Access, Caller
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
from waypost.wire.http_bodies import (
    INBOX_WAIT_MAX_S,
    AckRequest,
    CountResponse,
    Delivered,
    LeasedInbox,
    LeasedInboxes,
    LeaseManyRequest,
    LeaseRequest,
    Limit,
    NackRequest,
    Number,
    SubjectText,
)


class InboxRead(msgspec.Struct, forbid_unknown_fields=True):
    """Which inbox, and how much of it."""

    subject: SubjectText
    limit: Limit | msgspec.UnsetType = msgspec.UNSET
    max_size_bytes: Number | msgspec.UnsetType = msgspec.UNSET
    wait: Annotated[float, msgspec.Meta(ge=0, le=INBOX_WAIT_MAX_S)] = 0.0


class InboxNamed(msgspec.Struct, forbid_unknown_fields=True):
    """Which inbox."""

    subject: SubjectText


async def read_inbox(call: Call[InboxRead, None]) -> Reply:
    """Lease messages, waiting for the first if there are none."""
    context, wanted = call.context, call.parameters
    _admit(context, call.caller, wanted.subject)
    asked = LeaseRequest(
        subject=wanted.subject,
        limit=context.options.batch if wanted.limit is msgspec.UNSET else wanted.limit,
        max_size_bytes=None if wanted.max_size_bytes is msgspec.UNSET else wanted.max_size_bytes,
    )
    max_bytes = context.options.answer_max_bytes
    leased = await _lease(context.relay, asked, max_bytes)
    if not leased and wanted.wait:
        leased = await _lease_waiting(context.relay, asked, max_bytes, wanted.wait, call.request)
    return Reply(_inbox(wanted.subject, leased))


async def read_inboxes(call: Call[NoParameters, LeaseManyRequest]) -> Reply:
    """Lease from several inboxes; if one may not be read, none is."""
    context = call.context
    for asked in call.body.inboxes:
        _admit(context, call.caller, asked.subject)
    left, read = context.options.answer_max_bytes, []
    for asked in call.body.inboxes:
        leased = await _lease(context.relay, asked, left) if left > 0 else []
        left -= sum(one.size for one in leased)
        read.append(_inbox(asked.subject, leased))
    return Reply(LeasedInboxes(inboxes=read))


async def ack(call: Call[InboxNamed, AckRequest]) -> Reply:
    """These are done; their senders are told."""
    subject, relay = call.parameters.subject, call.context.relay
    _require(call.context, call.caller, subject)
    acked = relay.submit_ack(subject, call.body.ids)
    # Before the sync: acknowledgements and receipts belong to one commit.
    call.context.hub.confirm(subject, [(one.id, one.sender) for one in acked])
    await relay.sync()
    return Reply(CountResponse(count=len(acked)))


async def nack(call: Call[InboxNamed, NackRequest]) -> Reply:
    """These were not done."""
    subject = call.parameters.subject
    _require(call.context, call.caller, subject)
    count = await call.context.relay.nack(subject, call.body.ids, call.body.delay)
    return Reply(CountResponse(count=count))


async def _lease(
    relay: Relay, asked: LeaseRequest, max_bytes: int, wait_s: float = 0.0
) -> list[LeasedMessage]:
    return await relay.lease_messages(
        asked.subject, asked.limit, asked.max_size_bytes, wait_s, max_bytes
    )


async def _lease_waiting(
    relay: Relay, asked: LeaseRequest, max_bytes: int, wait_s: float, request: Request
) -> list[LeasedMessage]:
    """Lease what arrives within `wait_s`; nothing if the caller disconnects before that."""
    waiting = asyncio.ensure_future(_lease(relay, asked, max_bytes, wait_s))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            await _release(relay, asked.subject, waiting)
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
            await relay.nack(subject, [one.envelope.id for one in leased])


def _inbox(subject: str, leased: Iterable[LeasedMessage]) -> LeasedInbox:
    return LeasedInbox(
        subject=subject,
        messages=[
            Delivered(
                id=one.envelope.id,
                subject=one.envelope.subject,
                sender=one.envelope.sender,
                reply_to=one.envelope.reply_to,
                budget=one.envelope.budget,
                created_at=one.envelope.created_at,
                payload=one.envelope.payload,
                parent=one.parent,
            )
            for one in leased
        ],
    )


def _require(context: ServerContext, caller: Caller, subject: str) -> None:
    validate_subject(subject)
    caller.require(subject)
    _require_mailbox(context.relay, subject)


def _admit(context: ServerContext, caller: Caller, subject: str) -> None:
    """Whether `subject` may be read by this caller now; an agent's own mailbox is made."""
    validate_subject(subject)
    caller.require(subject)
    if context.hub.receives_pushes(subject):
        raise HttpError(409, f"{subject} is connected: its messages go there")
    if not caller.is_operator:
        context.mailboxes.open_for(subject)
    _require_mailbox(context.relay, subject)


def _require_mailbox(relay: Relay, subject: str) -> None:
    if not relay.inspect().has_mailbox(subject):
        raise UnknownEndpoint(subject)


_NOT_YOURS = "The inbox belongs to somebody else."
_CONNECTED = "The agent is connected and gets its messages there."

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/inbox/batch",
        access=Access.AGENT,
        summary="Read several inboxes",
        description="Leases messages from each, as reading one does, without waiting.",
        tag="inboxes",
        handler=read_inboxes,
        parameters=NoParameters,
        body=json_body(LeaseManyRequest),
        answer=Answer(LeasedInboxes),
        rejections={403: _NOT_YOURS, 404: "There is no such mailbox.", 409: _CONNECTED},
    ),
    Operation(
        method="GET",
        path="/v1/inbox/{subject}",
        access=Access.AGENT,
        summary="Read an inbox",
        description=(
            "Leases up to `limit` messages, the oldest first. Larger ones than `max_size_bytes`"
            f" stay where they are. Waits up to `wait` seconds (at most {INBOX_WAIT_MAX_S}) for"
            " the first. What is not acknowledged in time waits again, under the same id."
        ),
        tag="inboxes",
        handler=read_inbox,
        parameters=InboxRead,
        body=NO_BODY,
        answer=Answer(LeasedInbox),
        rejections={403: _NOT_YOURS, 409: _CONNECTED},
    ),
    Operation(
        method="POST",
        path="/v1/inbox/{subject}/ack",
        access=Access.AGENT,
        summary="These are done",
        description="They leave the mailbox; on disk when the answer comes.",
        tag="inboxes",
        handler=ack,
        parameters=InboxNamed,
        body=json_body(AckRequest),
        answer=Answer(CountResponse, "How many were still there."),
        rejections={403: _NOT_YOURS},
    ),
    Operation(
        method="POST",
        path="/v1/inbox/{subject}/nack",
        access=Access.AGENT,
        summary="These were not done",
        description="They wait again, not before `delay` seconds have passed.",
        tag="inboxes",
        handler=nack,
        parameters=InboxNamed,
        body=json_body(NackRequest),
        answer=Answer(CountResponse, "How many were handed out until now."),
        rejections={403: _NOT_YOURS},
    ),
)
