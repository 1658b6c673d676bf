"""Reading inboxes by lease, and saying what became of what was read."""

from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
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
from waypost.server.http.leasing import lease_now, lease_waiting, require_mailbox
from waypost.wire.http_bodies import (
    INBOX_WAIT_MAX_S,
    AckRequest,
    CountResponse,
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
    services, wanted = call.services, call.parameters
    _admit(services, call.caller, wanted.subject)
    asked = LeaseRequest(
        subject=wanted.subject,
        limit=services.options.batch if wanted.limit is msgspec.UNSET else wanted.limit,
        max_size_bytes=None if wanted.max_size_bytes is msgspec.UNSET else wanted.max_size_bytes,
    )
    messages = await lease_waiting(
        services.relay, asked, services.options.answer_max_bytes, wanted.wait, call.request
    )
    return Reply(LeasedInbox(subject=wanted.subject, messages=messages))


async def read_inboxes(call: Call[NoParameters, LeaseManyRequest]) -> Reply:
    """Lease from several inboxes; if one may not be read, none is."""
    services = call.services
    for asked in call.body.inboxes:
        _admit(services, call.caller, asked.subject)
    left, read = services.options.answer_max_bytes, []
    for asked in call.body.inboxes:
        messages = await lease_now(services.relay, asked, left) if left > 0 else []
        live = services.relay.parts.ledger.state.mailboxes[asked.subject].live
        left -= sum(live[one.id].size for one in messages if one.id in live)
        read.append(LeasedInbox(subject=asked.subject, messages=messages))
    return Reply(LeasedInboxes(inboxes=read))


async def ack(call: Call[InboxNamed, AckRequest]) -> Reply:
    """These are done; their senders are told."""
    subject, relay = call.parameters.subject, call.services.relay
    _require(call.services, call.caller, subject)
    acked = relay.parts.leases.ack(subject, call.body.ids)
    call.services.hub.confirm(subject, acked)  # first: both belong to one commit
    await relay.parts.ledger.sync()
    return Reply(CountResponse(count=len(acked)))


async def nack(call: Call[InboxNamed, NackRequest]) -> Reply:
    """These were not done."""
    subject = call.parameters.subject
    _require(call.services, call.caller, subject)
    count = await call.services.relay.nack(subject, call.body.ids, call.body.delay)
    return Reply(CountResponse(count=count))


def _require(services: ServerContext, caller: Caller, subject: str) -> None:
    validate_subject(subject)
    caller.require(subject)
    require_mailbox(services.relay, subject)


def _admit(services: ServerContext, caller: Caller, subject: str) -> None:
    """Whether `subject` may be read by this caller now; an agent's own mailbox is made."""
    validate_subject(subject)
    caller.require(subject)
    if services.hub.is_live(subject):
        raise HttpError(409, f"{subject} is connected: its messages go there")
    if not caller.is_operator:
        services.mailboxes.open_for(subject)
    require_mailbox(services.relay, subject)


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
