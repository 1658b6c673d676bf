"""All operations of the HTTP interface; literal paths come before paths with parameters."""

from waypost.server.http.contract import AnyOperation
from waypost.server.http.handlers import (
    agents,
    auth,
    breakers,
    dashboard,
    dead_letters,
    documents,
    endpoints,
    health,
    inboxes,
    messages,
    names,
    operating,
    pipeline,
    scheduled,
    search,
    stats,
    webhooks,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    *auth.OPERATIONS,
    *messages.OPERATIONS,
    *scheduled.OPERATIONS,
    *search.OPERATIONS,
    *inboxes.OPERATIONS,
    *endpoints.OPERATIONS,
    *agents.OPERATIONS,
    *names.OPERATIONS,
    *webhooks.OPERATIONS,
    *dead_letters.OPERATIONS,
    *breakers.OPERATIONS,
    *operating.OPERATIONS,
    *stats.OPERATIONS,
    *pipeline.OPERATIONS,
    *health.OPERATIONS,
    *documents.OPERATIONS,
    *dashboard.OPERATIONS,
)
