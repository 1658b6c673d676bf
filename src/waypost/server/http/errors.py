"""Errors as HTTP responses: one table from exceptions to statuses, one shape for all.

400 invalid                   the request is malformed; sending it again is of no use
401 not_authenticated         a missing or invalid token
403 forbidden, subject_taken, key_revoked, name_reserved, too_many_names, directory_closed,
    access_denied, host_not_allowed
404 not_found                 405 method_not_allowed        408 too_slow
409 conflict                  413 too_large                 415 unsupported_media_type
307, 421 moved                another node of the cluster has what the request is for, at `url`
421 misdirected               the Host header does not name this relay, or the subject belongs to
                              another partition
421 partition_needed          a node of a cluster: the operator has to name a partition
429, 503, 422                 a rejected publish; see `wire.problems.STATUS`
429 rate_limited              too many new names, changes of one, or changes of webhooks
500 internal                  a bug in the relay; see its log
503 stopped, storage_full, full, mailbox_unavailable
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
    LogUnavailable,
    MailboxTaken,
    MailboxUnavailable,
    NotOwner,
    OtherPartition,
    PartitionUnavailable,
    PoolFull,
    RelayError,
    RelayStopped,
    RequestFailed,
    RequestRejected,
    RequestTimedOut,
    RulesFileBroken,
    UnknownEndpoint,
)
from waypost.server.identity.errors import (
    DirectoryClosed,
    IdentitiesNotSaved,
    IdentityError,
    KeyRevoked,
    NameNotBound,
    NameReserved,
    NewNamesPaused,
    NotAuthenticated,
    SubjectTaken,
    TooManyCards,
    TooManyChanges,
    TooManyIdentities,
    TooManyNames,
    TooManyNewNames,
)
from waypost.server.webhooks.errors import (
    HostNotAllowed,
    NoWebhook,
    TooManyWebhookChanges,
    TooManyWebhooks,
    WebhookError,
    WebhookNotSaved,
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
    421: "misdirected",
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
    (KeyRevoked, 403, "key_revoked"),
    (DirectoryClosed, 403, "directory_closed"),
    (NameReserved, 403, "name_reserved"),
    (TooManyNames, 403, "too_many_names"),
    (NameNotBound, 404, ""),
    (TooManyNewNames, 429, Reason.RATE_LIMITED),
    (TooManyChanges, 429, Reason.RATE_LIMITED),
    (NewNamesPaused, 503, ""),
    (UnknownEndpoint, 404, ""),
    (RulesFileBroken, 409, ""),
    (MailboxTaken, 409, ""),
    (PoolFull, 409, ""),
    (OtherPartition, 421, ""),
    (PartitionUnavailable, 503, Reason.PARTITION_UNAVAILABLE),
    (MailboxUnavailable, 503, Reason.MAILBOX_UNAVAILABLE),
    (RequestRejected, 409, ""),
    (RequestFailed, 409, ""),
    (RequestTimedOut, 408, ""),
    (TooManyIdentities, 503, "full"),
    (TooManyCards, 503, "full"),
    (IdentitiesNotSaved, 503, Reason.STORAGE_FULL),
    (HostNotAllowed, 403, "host_not_allowed"),
    (NoWebhook, 404, ""),
    (TooManyWebhookChanges, 429, Reason.RATE_LIMITED),
    (TooManyWebhooks, 503, "full"),
    (WebhookNotSaved, 503, Reason.STORAGE_FULL),
    (NotOwner, 503, ""),
    (LogUnavailable, 503, ""),
    (RelayStopped, 503, ""),
    (DataDirInUse, 503, ""),
    (DataDirUnusable, 503, ""),
    (JournalUnreadable, 503, ""),
    (IdentityError, 500, ""),
    (WebhookError, 500, ""),
    (RelayError, 500, ""),
    (WaypostError, 500, ""),
)
"""The first matching class decides."""


class HttpError(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        reason: str | None = None,
        retry_after_ms: int = 0,
        headers: Mapping[str, str] | None = None,
        url: str = "",
    ) -> None:
        super().__init__(error)
        self.status = status
        self.headers = dict(headers or {})
        self.problem = Problem(
            error=printable(error),
            reason=REASONS.get(status, "") if reason is None else reason,
            retry_after_ms=retry_after_ms,
            url=url,
        )
        if retry_after_ms > 0:
            self.headers["Retry-After"] = str(math.ceil(retry_after_ms / 1000))


def rejection_of(problem: Exception) -> HttpError:
    """Return the response to an exception; an unexpected one is a 500 without details."""
    if isinstance(problem, HttpError):
        return problem
    for kind, status, reason in STATUSES:
        if not isinstance(problem, kind):
            continue
        if status == 500:
            break
        text = "nested too deeply" if kind is RecursionError else str(problem)
        full = isinstance(problem, RelayStopped) and problem.full
        code = Reason.STORAGE_FULL if full else reason or REASONS[status]
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        limits = TooManyNewNames | TooManyChanges | TooManyWebhookChanges
        wait_ms = problem.retry_after_ms if isinstance(problem, limits) else 0
        return HttpError(status, text, reason=code, retry_after_ms=wait_ms, headers=headers)
    return HttpError(500, "internal error; the relay's log has the details")


def printable(text: str) -> str:
    """Return text that can be encoded as UTF-8; lone surrogates are escaped."""
    return text.encode(errors="backslashreplace").decode()
