"""Endpoints: their list, registration, usage, and the public keys of agents."""

import asyncio
from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.relay.inspection.inspector import WALK_STEP
from waypost.relay.relay import Endpoint
from waypost.server.http.callers import Access
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    Operation,
    Reply,
)
from waypost.server.http.errors import HttpError
from waypost.wire.handshake import validate_agent_subject
from waypost.wire.http_bodies import EndpointInfo, EndpointList, SubjectText
from waypost.wire.sealing import Card
from waypost.wire.stats_bodies import InboxUsage


class EndpointPage(msgspec.Struct, forbid_unknown_fields=True):
    """The page of the list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    after: SubjectText | msgspec.UnsetType = msgspec.UNSET


class EndpointPath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject of an endpoint."""

    subject: SubjectText


async def list_endpoints(call: Call[EndpointPage, None]) -> Reply:
    """List endpoints by name, one page at a time."""
    query, relay = call.parameters, call.context.relay
    after = "" if query.after is msgspec.UNSET else validate_subject(query.after)
    names = await relay.inspect().names_after(after, query.limit + 1)
    more, names = len(names) > query.limit, names[: query.limit]
    shown: list[EndpointInfo] = []
    for begin in range(0, len(names), WALK_STEP):
        found = map(relay.get_endpoint, names[begin : begin + WALK_STEP])
        shown += [_facts(one) for one in found if one is not None]
        await asyncio.sleep(0)
    return Reply(EndpointList(endpoints=shown, next=names[-1] if more else None))


async def register_endpoint(call: Call[EndpointPath, None]) -> Reply:
    """Register an endpoint; one that is registered keeps its mailbox."""
    subject = validate_agent_subject(call.parameters.subject)
    endpoint = call.context.relay.register_endpoint(subject)
    await call.context.relay.sync()
    return Reply(_facts(endpoint))


async def unregister_endpoint(call: Call[EndpointPath, None]) -> Reply:
    """Unregister an endpoint."""
    subject = validate_agent_subject(call.parameters.subject)
    relay = call.context.relay
    endpoint = relay.get_endpoint(subject)
    relay.unregister_endpoint(subject)
    assert endpoint is not None  # or unregistering would have raised
    await relay.sync()
    return Reply(_facts(endpoint))


async def get_card(call: Call[EndpointPath, None]) -> Reply:
    """Return the public keys of an agent."""
    subject = validate_subject(call.parameters.subject)
    card = call.context.authenticator.card(subject)
    if card is None:
        raise HttpError(404, f"not found: {subject} has never authenticated at this relay")
    return Reply(card)


class UsageQuery(EndpointPath, forbid_unknown_fields=True):
    """The endpoint, and the number of senders to return."""

    senders: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 200


async def get_usage(call: Call[UsageQuery, None]) -> Reply:
    """Return the usage of one inbox."""
    subject, senders = call.parameters.subject, call.parameters.senders
    hub = call.context.hub
    usage = call.context.relay.inspect().usage(
        subject, senders, connected=hub.is_connected(subject)
    )
    usage.stuck = hub.is_stuck(subject)
    return Reply(usage)


def _facts(endpoint: Endpoint) -> EndpointInfo:
    path = endpoint.maildir_path
    return EndpointInfo(
        subject=endpoint.subject,
        hash=endpoint.hash,
        registered_at=endpoint.registered_at,
        maildir_path=None if path is None else str(path),
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/endpoints",
        access=Access.OPERATOR,
        summary="List endpoints",
        description="Sorted by name; `after` is the `next` of the previous page.",
        tag="endpoints",
        handler=list_endpoints,
        parameters=EndpointPage,
        body=NO_BODY,
        answer=Answer(EndpointList),
    ),
    Operation(
        method="PUT",
        path="/v1/endpoints/{subject}",
        access=Access.OPERATOR,
        summary="Register an endpoint",
        description="Creates its mailbox; an existing mailbox and its messages are kept.",
        tag="endpoints",
        handler=register_endpoint,
        parameters=EndpointPath,
        body=NO_BODY,
        answer=Answer(EndpointInfo),
    ),
    Operation(
        method="DELETE",
        path="/v1/endpoints/{subject}",
        access=Access.OPERATOR,
        summary="Unregister an endpoint",
        description="Pending messages are kept for the next registration of the subject.",
        tag="endpoints",
        handler=unregister_endpoint,
        parameters=EndpointPath,
        body=NO_BODY,
        answer=Answer(EndpointInfo, "The endpoint before."),
    ),
    Operation(
        method="GET",
        path="/v1/endpoints/{subject}/card",
        access=Access.AGENT,
        summary="The public keys of an agent",
        description="To encrypt messages to it, or to verify its signatures.",
        tag="endpoints",
        handler=get_card,
        parameters=EndpointPath,
        body=NO_BODY,
        answer=Answer(Card),
    ),
    Operation(
        method="GET",
        path="/v1/endpoints/{subject}/usage",
        access=Access.OPERATOR,
        summary="Usage of an inbox",
        description="Counts, senders with their tiers, and the quotas of each tier.",
        tag="endpoints",
        handler=get_usage,
        parameters=UsageQuery,
        body=NO_BODY,
        answer=Answer(InboxUsage),
    ),
)
