"""Dead letters: look, put back, throw away."""

from datetime import timedelta
from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
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
    PurgeRequest,
    RedriveRequest,
    RedriveResponse,
    SubjectText,
)

OLDER_MAX_MS = 100 * 366 * 24 * 3_600_000


class DeadLetterQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters, one by one or in groups."""

    subject: SubjectText | msgspec.UnsetType = msgspec.UNSET
    group: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class DeadLetterList(msgspec.Struct, kw_only=True):
    """`dead_letters`, the oldest failure first; or, if asked for, `groups`, the largest first."""

    total: int
    dead_letters: list[DeadLetter] | msgspec.UnsetType = msgspec.UNSET
    groups: list[DeadLetterGroup] | msgspec.UnsetType = msgspec.UNSET


async def list_dead_letters(call: Call[DeadLetterQuery, None]) -> Reply:
    """Dead letters of one endpoint or all."""
    wanted, relay = call.parameters, call.context.relay
    subject = None if wanted.subject is msgspec.UNSET else validate_subject(wanted.subject)
    groups = await relay.dead_letter_groups(subject)
    total = sum(one.count for one in groups)
    if wanted.group:
        return Reply(DeadLetterList(total=total, groups=groups[: wanted.limit]))
    letters = await relay.dead_letters(subject, wanted.limit)
    return Reply(DeadLetterList(total=total, dead_letters=letters))


async def redrive(call: Call[NoParameters, RedriveRequest]) -> Reply:
    """Put dead letters back into their mailboxes."""
    relay, asked = call.context.relay, call.body
    if asked.subject is not None:
        validate_subject(asked.subject)
    before = await _dead_ids(relay, asked.subject)
    count = await relay.redrive(asked.ids, asked.subject)
    left = await _dead_ids(relay, asked.subject)
    stayed = [one for one in dict.fromkeys(asked.ids) if one not in before or one in left]
    return Reply(RedriveResponse(redriven=count, not_redriven=stayed))


async def purge(call: Call[NoParameters, PurgeRequest]) -> Reply:
    """Throw dead letters away."""
    asked = call.body
    if asked.subject is not None:
        validate_subject(asked.subject)
    older_than = None
    if asked.older_than_ms is not None:
        older_than = timedelta(milliseconds=min(asked.older_than_ms, OLDER_MAX_MS))
    count = await call.context.relay.purge_dead_letters(older_than, asked.subject)
    return Reply(CountResponse(count=count))


async def _dead_ids(relay: Relay, subject: str | None) -> set[str]:
    return {one for group in await relay.dead_letter_groups(subject) for one in group.ids}


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/dead-letters",
        access=Access.OPERATOR,
        summary="List dead letters",
        description="One by one with their envelopes, or with `group=true` by endpoint and reason.",
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
        summary="Put dead letters back",
        description="At the end of their mailboxes. No check is repeated; expiry still holds.",
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
        summary="Throw dead letters away",
        description="Of one endpoint, or those that failed longer ago than so many ms, or all.",
        tag="dead letters",
        handler=purge,
        parameters=NoParameters,
        body=json_body(PurgeRequest),
        answer=Answer(CountResponse),
    ),
)
