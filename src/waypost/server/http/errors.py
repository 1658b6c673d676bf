"""Failures as answers: one table from exceptions to statuses, one shape for all of them.

400 invalid                   the request can never be accepted as it is
401 not_authenticated         no token, or none that is good
403 forbidden, subject_taken, access_denied
404 not_found                 405 method_not_allowed        408 too_slow
409 conflict                  413 too_large                 415 unsupported_media_type
429, 503, 422                 a publish that was refused; see `wire.problems.STATUS`
500 internal                  a mistake of ours; the log says more
503 stopped, storage_full, full
"""

import math
from collections.abc import Mapping

import msgspec

from waypost.policy.errors import AccessDenied, InvalidInput, WaypostError
from waypost.policy.reasons import Reason
from waypost.relay.errors import (
    DataDirInUse,
    DataDirUnusable,
    JournalUnreadable,
    MailboxTaken,
    RelayError,
    RelayStopped,
    RequestRejected,
    RequestTimedOut,
    RulesFileBroken,
    UnknownEndpoint,
)
from waypost.server.identity.errors import (
    IdentitiesNotSaved,
    IdentityError,
    NotAuthenticated,
    SubjectTaken,
    TooManyIdentities,
)
from waypost.wire.problems import Problem

REASONS = {
    400: "invalid",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    500: "internal",
    503: "stopped",
}

STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (InvalidInput, 400, ""),
    (msgspec.DecodeError, 400, ""),
    (UnicodeDecodeError, 400, ""),
    (RecursionError, 400, ""),
    (NotAuthenticated, 401, ""),
    (AccessDenied, 403, Reason.ACCESS_DENIED),
    (SubjectTaken, 403, "subject_taken"),
    (UnknownEndpoint, 404, ""),
    (RulesFileBroken, 409, ""),
    (MailboxTaken, 409, ""),
    (RequestRejected, 409, ""),
    (RequestTimedOut, 408, ""),
    (TooManyIdentities, 503, "full"),
    (IdentitiesNotSaved, 503, Reason.STORAGE_FULL),
    (RelayStopped, 503, ""),
    (DataDirInUse, 503, ""),
    (DataDirUnusable, 503, ""),
    (JournalUnreadable, 503, ""),
    (IdentityError, 500, ""),
    (RelayError, 500, ""),
    (WaypostError, 500, ""),
)
"""The first that fits."""


class HttpError(Exception):
    """An answer other than the one that was hoped for."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        reason: str | None = None,
        retry_after_ms: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.headers = dict(headers or {})
        self.problem = Problem(
            error=printable(error),
            reason=REASONS.get(status, "") if reason is None else reason,
            retry_after_ms=retry_after_ms,
        )
        if retry_after_ms > 0:
            self.headers["Retry-After"] = str(math.ceil(retry_after_ms / 1000))


def rejection_of(problem: Exception) -> HttpError:
    """How an exception is answered. One that was not expected is a 500 that tells nothing."""
    if isinstance(problem, HttpError):
        return problem
    for kind, status, reason in STATUSES:
        if not isinstance(problem, kind):
            continue
        if status == 500:
            break
        text = "nested too deeply" if kind is RecursionError else str(problem)
        full = isinstance(problem, RelayStopped) and problem.full
        said = Reason.STORAGE_FULL if full else reason or REASONS[status]
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return HttpError(status, text, reason=said, headers=headers)
    return HttpError(500, "the relay made a mistake; its log says more")


def printable(text: str) -> str:
    """Text that can be written as UTF-8, whatever came in."""
    return text.encode(errors="backslashreplace").decode()
