"""Details of one inbox: usage, tier and quota of each sender."""

from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.handlers.endpoints import EndpointNamed
from waypost.wire.http_bodies import InboxUsage


async def get_usage(call: Call[EndpointNamed, None]) -> Reply:
    """Return the usage of one inbox."""
    subject = call.parameters.subject
    connected = call.context.hub.is_connected(subject)
    return Reply(call.context.relay.inspect().usage(subject, connected=connected))


OPERATIONS: tuple[AnyOperation, ...] = (
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
