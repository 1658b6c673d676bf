"""Leases: until when a consumer may keep a message that it has not acknowledged.

Rule 1  A lease ends after `lease_timeout_ms`, unless it is extended.
Rule 2  A connected agent has one deadline for all its messages in flight, because most of them
        were fetched ahead and wait for the oldest. It begins when the oldest is sent, and begins
        again with every ack, nack or extension: these are signs of life.
Rule 3  An extension never shortens a lease. It moves the end by a quarter of the timeout at least,
        so that the journal grows slowly however often a consumer extends.

This module does not know what happens to a message whose lease has ended; see `redelivery`.
"""


def extended_until_us(until_us: int, now_us: int, extension_us: int, timeout_us: int) -> int:
    """Return the end of a lease after an extension by `extension_us` from now on.

    It is `until_us`, the end before (0: without one of its own), if that is not earlier.
    """
    wanted_us = now_us + extension_us
    if wanted_us <= until_us:
        return until_us
    return max(wanted_us, until_us + timeout_us // 4)


def agent_deadline_us(alive_us: int, timeout_us: int, extended_us: int) -> int:
    """Return when an agent with messages in flight is stuck.

    `alive_us` is its last sign of life, `extended_us` the latest end of an extended lease.
    """
    return max(alive_us + timeout_us, extended_us)
