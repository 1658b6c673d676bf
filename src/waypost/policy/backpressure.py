"""Backpressure: how full a mailbox is, and when it is too full.

Rule 1  Every unacknowledged message counts, leased ones included: a leased message may return,
        and there must be room for it.
Rule 2  A mailbox at its limit accepts nothing more; pressure is never above 1.
"""

from typing import Annotated

import msgspec

from waypost.policy.rate_limits import PositiveInt


class BackpressureConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """1000 messages per mailbox, with a warning signal from 0.8 of that."""

    enabled: bool = True
    max_mailbox_size: PositiveInt = 1000
    pressure_warning_at: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8


DEFAULT_BP_CONFIG = BackpressureConfig()


class BackpressureResult(msgspec.Struct, frozen=True, gc=False):
    """`pressure` is the share of the mailbox in use, 0.0 to 1.0."""

    allowed: bool
    current_size: int
    pressure: float
    reason: str | None = None


def check_backpressure(
    current_size: int, config: BackpressureConfig = DEFAULT_BP_CONFIG
) -> BackpressureResult:
    """Return whether a mailbox with `current_size` messages accepts one more."""
    if not config.enabled:
        return BackpressureResult(True, current_size, 0.0)
    limit = config.max_mailbox_size
    pressure = min(current_size / limit, 1.0) if limit > 0 else 0.0
    if current_size >= limit:
        reason = f"backpressure: mailbox full ({current_size}/{limit})"
        return BackpressureResult(False, current_size, pressure, reason)
    return BackpressureResult(True, current_size, pressure)
