"""Health checks and metrics, for process supervisors and Prometheus."""

from waypost.policy.reasons import Reason
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
from waypost.server.metrics import CONTENT_TYPE, Connected
from waypost.version import installed_version
from waypost.wire.http_bodies import Health


async def up(call: Call[NoParameters, None]) -> Reply:
    """Report that the process is up."""
    return Reply(Health(status="up"))


async def ready(call: Call[NoParameters, None]) -> Reply:
    """Report whether messages can be stored."""
    inspector = call.context.relay.inspect()
    journal = inspector.journal()
    if journal.failure:
        raise HttpError(503, f"journal failed: {journal.failure}")
    if journal.full:
        raise HttpError(503, f"storage full: {journal.full_because}", reason="storage_full")
    if inspector.mailbox_problem:
        raise HttpError(503, inspector.mailbox_problem, reason=Reason.MAILBOX_UNAVAILABLE)
    return Reply(Health(status="ready", version=installed_version()))


async def metrics(call: Call[NoParameters, None]) -> Reply:
    """Return metrics for Prometheus."""
    context, hub = call.context, call.context.hub
    totals = (await context.sampler.survey()).totals
    connected = Connected(len(hub), hub.stuck_count(), hub.signals, context.webhooks.notices)
    content = context.http_metrics.render(context.relay, totals, connected)
    return Reply(content, media_type=CONTENT_TYPE)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/healthz",
        access=Access.ANYONE,
        summary="Liveness",
        description="Succeeds while the process runs. For readiness, see `/readyz`.",
        tag="health",
        handler=up,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(Health),
        any_host=True,
        needs_relay=False,
    ),
    Operation(
        method="GET",
        path="/readyz",
        access=Access.ANYONE,
        summary="Readiness",
        description=(
            "503 with the reason while the relay is not open or cannot write its journal: the disk"
            " is full, no file descriptor is free, or a write has failed for good; and while no"
            " mailbox can be created."
        ),
        tag="health",
        handler=ready,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(Health),
        any_host=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        access=Access.SCRAPER,
        summary="Metrics",
        description=(
            "For Prometheus. No label holds a name chosen by an agent. With `--metrics operator`,"
            " it needs the operator's token."
        ),
        tag="health",
        handler=metrics,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "The text format of Prometheus.", CONTENT_TYPE),
    ),
)
