"""Connected agents: the operator disconnects them and releases their leases."""

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.errors import HttpError
from waypost.wire.frames import CLOSE_BY_OPERATOR
from waypost.wire.http_bodies import CountResponse, SubjectText

BY_OPERATOR_TEXT = "disconnected by the operator of the relay"


class AgentPath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject of an agent."""

    subject: SubjectText


async def disconnect(call: Call[AgentPath, None]) -> Reply:
    """End the connection of an agent."""
    subject = validate_subject(call.parameters.subject)
    if not call.context.hub.disconnect(subject, CLOSE_BY_OPERATOR, BY_OPERATOR_TEXT):
        raise HttpError(404, f"{subject} is not connected")
    return Reply(CountResponse(count=1))


async def release_leases(call: Call[AgentPath, None]) -> Reply:
    """Return everything that an agent has leased to its queue."""
    subject = validate_subject(call.parameters.subject)
    return Reply(CountResponse(count=await call.context.relay.release_leases(subject)))


OPERATIONS: tuple[AnyOperation, ...] = (
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
