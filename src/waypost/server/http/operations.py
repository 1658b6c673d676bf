"""Every operation of the HTTP interface. Paths without parameters come before those with."""

from waypost.server.http.contract import AnyOperation
from waypost.server.http.handlers import (
    auth,
    dashboard,
    dead_letters,
    documents,
    endpoints,
    health,
    inboxes,
    live,
    messages,
    operating,
    pipeline,
    search,
    stats,
    usage,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    *auth.OPERATIONS,
    *messages.OPERATIONS,
    *search.OPERATIONS,
    *inboxes.OPERATIONS,
    *endpoints.OPERATIONS,
    *usage.OPERATIONS,
    *dead_letters.OPERATIONS,
    *operating.OPERATIONS,
    *stats.OPERATIONS,
    *live.OPERATIONS,
    *pipeline.OPERATIONS,
    *health.OPERATIONS,
    *documents.OPERATIONS,
    *dashboard.OPERATIONS,
)
