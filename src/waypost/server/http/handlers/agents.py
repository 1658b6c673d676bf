"""Agents: the directory with their cards; the operator disconnects them and releases leases."""

from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
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
from waypost.server.http.errors import HttpError
from waypost.server.identity.errors import DirectoryClosed
from waypost.wire.cards import AgentCard, AgentInfo, AgentList, validate_skill
from waypost.wire.frames import CLOSE_BY_OPERATOR
from waypost.wire.http_bodies import CountResponse, SubjectText

HIDDEN_TEXT = {
    "open": "check the spelling",
    "contacts": "the relay shows agents to those they exchange messages with",
}
BY_OPERATOR_TEXT = "disconnected by the operator of the relay"


class AgentPage(msgspec.Struct, forbid_unknown_fields=True):
    """The page of the directory; with `skill`, only agents whose card has it."""

    skill: str | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    after: SubjectText | msgspec.UnsetType = msgspec.UNSET


class AgentPath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject of an agent."""

    subject: SubjectText


async def find_agents(call: Call[AgentPage, None]) -> Reply:
    """List the agents that the caller may see."""
    query, directory = call.parameters, call.context.directory
    if directory.mode == "closed" and not call.caller.is_operator:
        raise DirectoryClosed
    after = "" if query.after is msgspec.UNSET else validate_subject(query.after)
    skill = None if query.skill is msgspec.UNSET else validate_skill(query.skill.lower())
    return Reply(await directory.find(call.caller.subject, skill, after, query.limit))


async def show_agent(call: Call[AgentPath, None]) -> Reply:
    """Return one agent that the caller may see."""
    subject = validate_subject(call.parameters.subject)
    directory, viewer = call.context.directory, call.caller.subject
    found = await directory.get(viewer, subject)
    if found is not None:
        return Reply(found)
    if call.caller.is_operator:
        text = "check the spelling; 'waypost names list' shows all names"
        raise HttpError(404, f"{subject} has never connected to this relay: {text}")
    if directory.mode == "closed":
        raise DirectoryClosed
    why = HIDDEN_TEXT[directory.mode]
    raise HttpError(404, f"the directory shows you no agent {subject}: {why}")


async def set_card(call: Call[NoParameters, AgentCard]) -> Reply:
    """Keep the card of the agent that calls."""
    if call.caller.is_operator:
        raise HttpError(403, "forbidden: an agent sets its own card, with its own token")
    return Reply(await call.context.directory.set_card(call.caller.subject, call.body))


async def disconnect(call: Call[AgentPath, None]) -> Reply:
    """End the connection of an agent."""
    subject = validate_subject(call.parameters.subject)
    if not call.context.hub.disconnect(subject, CLOSE_BY_OPERATOR, BY_OPERATOR_TEXT):
        raise HttpError(404, f"{subject} is not connected: 'waypost agents list' shows who is")
    return Reply(CountResponse(count=1))


async def release_leases(call: Call[AgentPath, None]) -> Reply:
    """Return everything that an agent has leased to its queue."""
    subject = validate_subject(call.parameters.subject)
    return Reply(CountResponse(count=await call.context.relay.release_leases(subject)))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/agents",
        access=Access.AGENT,
        summary="Find agents",
        description=(
            "The agents that the caller may see, by name, with their keys and cards; with `skill`,"
            " those whose card has it. The server's option `directory` decides who sees whom; the"
            " operator sees all. `after` is the `next` of the previous page."
        ),
        tag="agents",
        handler=find_agents,
        parameters=AgentPage,
        body=NO_BODY,
        answer=Answer(AgentList),
        rejections={403: "The directory is closed."},
    ),
    Operation(
        method="PUT",
        path="/v1/agents/me",
        access=Access.AGENT,
        summary="Set your card",
        description=(
            "What an agent says about itself, for others to find it. It replaces the card before;"
            " an empty one removes it."
        ),
        tag="agents",
        handler=set_card,
        parameters=NoParameters,
        body=json_body(AgentCard),
        answer=Answer(AgentInfo),
        rejections={429: "Too many changes at once; see `retry_after_ms`."},
    ),
    Operation(
        method="GET",
        path="/v1/agents/{subject}",
        access=Access.AGENT,
        summary="Show an agent",
        description="Its key, its card, and whether it is connected, if the caller may see it.",
        tag="agents",
        handler=show_agent,
        parameters=AgentPath,
        body=NO_BODY,
        answer=Answer(AgentInfo),
        rejections={403: "The directory is closed.", 404: "The caller sees no such agent."},
    ),
    Operation(
        method="POST",
        path="/v1/agents/{subject}/disconnect",
        access=Access.OPERATOR,
        summary="Disconnect an agent",
        description=(
            f"Closes its WebSocket with {CLOSE_BY_OPERATOR}; its unacknowledged messages return to"
            " the queue. It may connect again: to keep it away, free its name."
        ),
        tag="agents",
        handler=disconnect,
        parameters=AgentPath,
        body=NO_BODY,
        answer=Answer(CountResponse),
        rejections={404: "The agent is not connected."},
    ),
    Operation(
        method="POST",
        path="/v1/agents/{subject}/release",
        access=Access.OPERATOR,
        summary="Release the leases of an agent",
        description=(
            "Returns all its leased messages to the queue, without a verdict. If it is connected,"
            " it gets no more until it acks, nacks or extends one of them."
        ),
        tag="agents",
        handler=release_leases,
        parameters=AgentPath,
        body=NO_BODY,
        answer=Answer(CountResponse, "The number of messages that were leased."),
        rejections={404: "No such mailbox."},
    ),
)
