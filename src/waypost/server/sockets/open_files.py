"""The number of connections that the process has file descriptors for."""

import logging
import resource

log = logging.getLogger("waypost.server")

RESERVED_FILES = 128
"""Descriptors kept for the journal, the index, mailboxes and everything else that is no socket."""


def connections_allowed(wanted: int) -> int:
    """Raise the soft limit of open files as far as `wanted` needs; return what it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        more = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        except (OSError, ValueError):
            pass  # the system allows less than it says; keep the old limit
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = soft - RESERVED_FILES if soft >= 2 * RESERVED_FILES else max(1, soft // 2)
    log.warning(
        "the limit of %d open files allows %d connections, not %d: raise it with 'ulimit -n'",
        soft,
        allowed,
        wanted,
    )
    return allowed
