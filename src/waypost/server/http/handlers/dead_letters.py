"""Dead letters: list, redrive and purge."""

from datetime import timedelta
from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.paging import read_cursor
from waypost.relay.relay import Relay
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
from waypost.wire.http_bodies import (
    CountResponse,
    CursorText,
    PurgeRequest,
    RedriveRequest,
    RedriveResponse,
    SubjectText,
)

ReasonText = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
OLDER_MAX_MS = 100 * 366 * 24 * 3_600_000


class DeadLetterQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The endpoint, the kind of reason, and a list or groups; `after` is `next` of a list."""

    subject: SubjectText | msgspec.UnsetType = msgspec.UNSET
    reason: ReasonText | msgspec.UnsetType = msgspec.UNSET
    after: CursorText | msgspec.UnsetType = msgspec.UNSET
    group: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class DeadLetterList(msgspec.Struct, kw_only=True):
    """`dead_letters`, the oldest failure first, or `groups`, the largest first.

    `total` counts the dead letters and `groups_total` the groups, those left out too. The next
    page of a list is after the cursor `next`, empty if there is none.
    """

    total: int
    groups_total: int
    next: str = ""
    dead_letters: list[DeadLetter] | msgspec.UnsetType = msgspec.UNSET
    groups: list[DeadLetterGroup] | msgspec.UnsetType = msgspec.UNSET


async def list_dead_letters(call: Call[DeadLetterQuery, None]) -> Reply:
    """List dead letters of one endpoint or all."""
    query, relay = call.parameters, call.context.relay
    subject = None if query.subject is msgspec.UNSET else validate_subject(query.subject)
    kind = None if query.reason is msgspec.UNSET else query.reason
    after = (0, 0) if query.after is msgspec.UNSET else read_cursor(query.after)
    groups = await relay.dead_letter_groups(subject)
    groups = [one for one in groups if kind is None or one.reason == kind]
    reply = DeadLetterList(total=sum(one.count for one in groups), groups_total=len(groups))
    if query.group:
        reply.groups = groups[: query.limit]
        return Reply(reply)
    page = relay.inspect().dead_letters(query.limit, subject, kind, after)
    reply.dead_letters, reply.next = page.dead_letters, page.next
    return Reply(reply)


async def redrive(call: Call[NoParameters, RedriveRequest]) -> Reply:
    """Return dead letters to their mailboxes."""
    relay, request = call.context.relay, call.body
    if request.subject is not None:
        validate_subject(request.subject)
    before = await _dead_ids(relay, request.subject)
    count = await relay.redrive(request.ids, request.subject)
    left = await _dead_ids(relay, request.subject)
    not_redriven = [one for one in dict.fromkeys(request.ids) if one not in before or one in left]
    return Reply(RedriveResponse(redriven=count, not_redriven=not_redriven))


async def purge(call: Call[NoParameters, PurgeRequest]) -> Reply:
    """Delete dead letters."""
    request = call.body
    if request.subject is not None:
        validate_subject(request.subject)
    older_than = None
    if request.older_than_ms is not None:
        older_than = timedelta(milliseconds=min(request.older_than_ms, OLDER_MAX_MS))
    count = await call.context.relay.purge_dead_letters(older_than, request.subject)
    return Reply(CountResponse(count=count))


async def _dead_ids(relay: Relay, subject: str | None) -> set[str]:
    return {one for group in await relay.dead_letter_groups(subject) for one in group.ids}


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/dead-letters",
        access=Access.OPERATOR,
        summary="List dead letters",
        description=(
            "With their envelopes, in pages, or with `group=true` grouped by endpoint and kind of"
            " reason. The next page of a list is `after` the cursor `next`."
        ),
        tag="dead letters",
        handler=list_dead_letters,
        parameters=DeadLetterQuery,
        body=NO_BODY,
        answer=Answer(DeadLetterList),
    ),
    Operation(
        method="POST",
        path="/v1/dead-letters/redrive",
        access=Access.OPERATOR,
        summary="Redrive dead letters",
        description="Returns them to the end of their mailboxes. Only expiry is checked again.",
        tag="dead letters",
        handler=redrive,
        parameters=NoParameters,
        body=json_body(RedriveRequest),
        answer=Answer(RedriveResponse),
    ),
    Operation(
        method="POST",
        path="/v1/dead-letters/purge",
        access=Access.OPERATOR,
        summary="Purge dead letters",
        description="Deletes those of one endpoint, those older than `older_than_ms`, or all.",
        tag="dead letters",
        handler=purge,
        parameters=NoParameters,
        body=json_body(PurgeRequest),
        answer=Answer(CountResponse),
    ),
)
