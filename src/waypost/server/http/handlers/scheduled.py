"""Scheduled messages: list and cancel. An agent its own, the operator all."""

from typing import Annotated

import msgspec

from waypost.server.http.callers import Access
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
from waypost.wire.schedule_bodies import CancelRequest, CancelResponse, ScheduledList
from waypost.wire.scheduled import without_endpoints


class ScheduledQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many to list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


async def list_scheduled(call: Call[ScheduledQuery, None]) -> Reply:
    """List scheduled messages, those due first at the beginning."""
    relay, caller, limit = call.context.relay, call.caller, call.parameters.limit
    sender = None if caller.is_operator else caller.subject
    found = relay.inspect().scheduled(sender, limit + 1)
    shown = found[:limit] if caller.is_operator else without_endpoints(found[:limit])
    return Reply(ScheduledList(messages=shown, more=len(found) > limit))


async def cancel_scheduled(call: Call[NoParameters, CancelRequest]) -> Reply:
    """Cancel scheduled messages that are not due yet."""
    caller, ids = call.caller, call.body.ids
    cancelled = await call.context.relay.cancel(ids, None if caller.is_operator else caller.subject)
    left = [one for one in dict.fromkeys(ids) if one not in cancelled]
    return Reply(CancelResponse(cancelled=cancelled, not_cancelled=left))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/scheduled",
        access=Access.AGENT,
        summary="List scheduled messages",
        description="Those of the caller that are not due yet; to the operator, of every sender.",
        tag="messages",
        handler=list_scheduled,
        parameters=ScheduledQuery,
        body=NO_BODY,
        answer=Answer(ScheduledList),
    ),
    Operation(
        method="POST",
        path="/v1/scheduled/cancel",
        access=Access.AGENT,
        summary="Cancel scheduled messages",
        description="Those of the caller that are not due yet; for the operator, of any sender.",
        tag="messages",
        handler=cancel_scheduled,
        parameters=NoParameters,
        body=json_body(CancelRequest),
        answer=Answer(CancelResponse),
    ),
)
