"""Circuit breakers, for the operator."""

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
)
from waypost.wire.breaker_bodies import BreakerList, BreakerReset, describe_breaker
from waypost.wire.http_bodies import SubjectText


class BreakerPath(msgspec.Struct, forbid_unknown_fields=True):
    """The endpoint of a circuit breaker."""

    subject: SubjectText


async def list_breakers(call: Call[NoParameters, None]) -> Reply:
    """Return the breakers that are not at rest."""
    found = call.context.relay.inspect().breakers()
    return Reply(BreakerList(breakers={name: describe_breaker(one) for name, one in found.items()}))


async def reset_breaker(call: Call[BreakerPath, None]) -> Reply:
    """Close a breaker."""
    endpoint = validate_subject(call.parameters.subject)
    before = await call.context.relay.reset_breaker(endpoint)
    return Reply(BreakerReset(endpoint=endpoint, before=before))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/breakers",
        access=Access.OPERATOR,
        summary="List circuit breakers",
        description="Those that are not at rest: open, half-open, or closed with failures.",
        tag="breakers",
        handler=list_breakers,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(BreakerList),
    ),
    Operation(
        method="POST",
        path="/v1/breakers/{subject}/reset",
        access=Access.OPERATOR,
        summary="Reset a circuit breaker",
        description=(
            "Closes the breaker of an endpoint and forgets its failures: the next message is"
            " admitted. Durable when the response arrives. A breaker at rest stays as it is."
        ),
        tag="breakers",
        handler=reset_breaker,
        parameters=BreakerPath,
        body=NO_BODY,
        answer=Answer(BreakerReset),
    ),
)
