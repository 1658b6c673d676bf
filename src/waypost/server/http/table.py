"""Every operation of the HTTP interface. Paths without parameters come before those with."""

from waypost.server.http.contract import AnyOperation
from waypost.server.http.handlers import (
    auth,
    dead_letters,
    documents,
    endpoints,
    health,
    inboxes,
    messages,
    operating,
    stats,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    *auth.OPERATIONS,
    *messages.OPERATIONS,
    *inboxes.OPERATIONS,
    *endpoints.OPERATIONS,
    *dead_letters.OPERATIONS,
    *operating.OPERATIONS,
    *stats.OPERATIONS,
    *health.OPERATIONS,
    *documents.OPERATIONS,
)
