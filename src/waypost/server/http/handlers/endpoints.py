"""Endpoints, and the public keys of agents."""

import heapq
from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
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
from waypost.wire.http_bodies import EndpointInfo, EndpointList, InboxUsage, SubjectText
from waypost.wire.sealing import Card


class EndpointPage(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of the list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    after: SubjectText | msgspec.UnsetType = msgspec.UNSET


class EndpointNamed(msgspec.Struct, forbid_unknown_fields=True):
    """Which endpoint."""

    subject: SubjectText


async def list_endpoints(call: Call[EndpointPage, None]) -> Reply:
    """Endpoints by name, a page at a time."""
    wanted, relay = call.parameters, call.context.relay
    after = "" if wanted.after is msgspec.UNSET else validate_subject(wanted.after)
    subjects = relay.inspect().subjects()
    names = heapq.nsmallest(wanted.limit + 1, (name for name in subjects if name > after))
    more, names = len(names) > wanted.limit, names[: wanted.limit]
    found = [relay.get_endpoint(name) for name in names]
    return Reply(
        EndpointList(
            endpoints=[_facts(one) for one in found if one is not None],
            next=names[-1] if more else None,
        )
    )


async def register_endpoint(call: Call[EndpointNamed, None]) -> Reply:
    """Give a subject a mailbox; one that has it keeps it."""
    subject = validate_agent_subject(call.parameters.subject)
    endpoint = call.context.relay.register_endpoint(subject)
    await call.context.relay.sync()
    return Reply(_facts(endpoint))


async def unregister_endpoint(call: Call[EndpointNamed, None]) -> Reply:
    """Take no more mail for a subject."""
    subject = validate_agent_subject(call.parameters.subject)
    relay = call.context.relay
    endpoint = relay.get_endpoint(subject)
    relay.unregister_endpoint(subject)
    assert endpoint is not None  # or unregistering would have raised
    await relay.sync()
    return Reply(_facts(endpoint))


async def get_card(call: Call[EndpointNamed, None]) -> Reply:
    """The public keys of an agent."""
    subject = validate_subject(call.parameters.subject)
    card = call.context.authenticator.card(subject)
    if card is None:
        raise HttpError(404, f"{subject} has never been here")
    return Reply(card)


async def get_usage(call: Call[EndpointNamed, None]) -> Reply:
    """Return the usage of one inbox."""
    subject = call.parameters.subject
    connected = call.context.hub.is_connected(subject)
    return Reply(call.context.relay.inspect().usage(subject, connected=connected))


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
        description="By name; `after` is the `next` of the page before.",
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
        summary="Give a subject a mailbox",
        description="One that has a mailbox already keeps it, with its mail.",
        tag="endpoints",
        handler=register_endpoint,
        parameters=EndpointNamed,
        body=NO_BODY,
        answer=Answer(EndpointInfo),
    ),
    Operation(
        method="DELETE",
        path="/v1/endpoints/{subject}",
        access=Access.OPERATOR,
        summary="Take no more mail for a subject",
        description="What waits stays, for whoever registers the subject again.",
        tag="endpoints",
        handler=unregister_endpoint,
        parameters=EndpointNamed,
        body=NO_BODY,
        answer=Answer(EndpointInfo, "The endpoint as it was."),
    ),
    Operation(
        method="GET",
        path="/v1/endpoints/{subject}/card",
        access=Access.AGENT,
        summary="The public keys of an agent",
        description="For whoever wants to encrypt to it, or to check what it has signed.",
        tag="endpoints",
        handler=get_card,
        parameters=EndpointNamed,
        body=NO_BODY,
        answer=Answer(Card),
    ),
    Operation(
        method="GET",
        path="/v1/endpoints/{subject}/usage",
        access=Access.OPERATOR,
        summary="One inbox and who fills it",
        description="How full it is, its senders with their tiers, and the limits of each tier.",
        tag="endpoints",
        handler=get_usage,
        parameters=EndpointNamed,
        body=NO_BODY,
        answer=Answer(InboxUsage),
    ),
)
