"""For those who watch the process: is it up, can it be used, what are its numbers."""

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
from waypost.server.http.errors import HttpError
from waypost.server.metrics import CONTENT_TYPE
from waypost.wire.http_bodies import Health


async def up(call: Call[NoParameters, None]) -> Reply:
    """The process answers; that is all it says."""
    return Reply(Health(status="up"))


async def ready(call: Call[NoParameters, None]) -> Reply:
    """Whether messages are taken now."""
    journal = call.context.relay.inspect().journal()
    if journal.failure:
        raise HttpError(503, f"the journal cannot be written: {journal.failure}")
    if journal.full:
        raise HttpError(503, "the disk of the relay is full", reason="storage_full")
    return Reply(Health(status="ready"))


async def metrics(call: Call[NoParameters, None]) -> Reply:
    """Numbers for Prometheus."""
    context = call.context
    content = context.http_metrics.render(context.relay, len(context.hub))
    return Reply(content, media_type=CONTENT_TYPE)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/healthz",
        access=Access.ANYONE,
        summary="Whether the process is up",
        description="It is if it answers. Whether it can be used is another question: `/readyz`.",
        tag="health",
        handler=up,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(Health),
        needs_relay=False,
    ),
    Operation(
        method="GET",
        path="/readyz",
        access=Access.ANYONE,
        summary="Whether messages are taken",
        description="503 with the reason while the relay is not open, or cannot write its journal.",
        tag="health",
        handler=ready,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(Health),
    ),
    Operation(
        method="GET",
        path="/metrics",
        access=Access.ANYONE,
        summary="Numbers for Prometheus",
        description="No label holds a name that an agent chose.",
        tag="health",
        handler=metrics,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "The text format of Prometheus.", CONTENT_TYPE),
    ),
)
