"""Redelivery: when a message that was not acknowledged is delivered again, and when no more.

Rule 1  The first redelivery is immediate: most deliveries fail once, because of a restart or the
        network. From the second on, each waits about twice as long as the one before.
Rule 2  Delays are spread by the message's id, not by chance: a replay gets the same ones.
Rule 3  After `max_deliveries` the message becomes a dead letter, which names the last error.
Rule 4  A message whose sender waits for the reply is not delivered again after an error of its
        consumer: the error is the answer. A delay asks for another delivery all the same.
Rule 5  A delivery without a verdict does not count. Many of them in a row, without one
        acknowledgement, pause the mailbox for a growing time.

This module knows the error of a delivery as a text, and does not look at it.
"""

import zlib
from typing import Annotated

import msgspec

from waypost.policy.bounds import (
    number_max,
    released_before_pause_max_messages,
    released_per_pause_step_max_messages,
)
from waypost.policy.rate_limits import PositiveInt
from waypost.policy.reasons import reason_text

_DOUBLINGS_MAX = 32
_FIRST_PAUSE_MS = 100
_PAUSE_MAX_MS = 300_000


class RedeliveryConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """At most 5 deliveries (0: no end), with delays from 1 s, doubling up to 5 minutes."""

    max_deliveries: Annotated[int, msgspec.Meta(ge=0, le=number_max)] = 5
    first_delay_ms: PositiveInt = 1_000
    max_delay_ms: PositiveInt = 300_000


class RedeliveryVerdict(msgspec.Struct, frozen=True, gc=False):
    """The decision: deliver again after `delay_ms`, or, with a `reason`, never."""

    delay_ms: int = 0
    reason: str | None = None


def decide_redelivery(
    message_id: str,
    deliveries: int,
    config: RedeliveryConfig,
    error: str = "",
    *,
    ends_request: bool = False,
) -> RedeliveryVerdict:
    """Decide about a message whose delivery number `deliveries` failed with `error`.

    `ends_request`: see `is_end_of_request`.
    """
    if ends_request:
        return RedeliveryVerdict(reason=reason_text("request failed", error))
    if 0 < config.max_deliveries <= deliveries:
        kind = f"max deliveries exceeded ({deliveries}/{config.max_deliveries})"
        return RedeliveryVerdict(reason=reason_text(kind, error))
    if deliveries <= 1:
        return RedeliveryVerdict()
    doublings = min(deliveries - 2, _DOUBLINGS_MAX)
    longest = min(config.first_delay_ms << doublings, config.max_delay_ms)
    earlier = longest * (zlib.crc32(message_id.encode()) % 256) // 1024  # up to a quarter
    return RedeliveryVerdict(delay_ms=longest - earlier)


def is_end_of_request(*, is_awaited: bool, error: str, delay_us: int) -> bool:
    """Return whether a nack is the answer to a request: its consumer gave an error, asked for no
    other delivery, and the sender still waits."""
    return is_awaited and bool(error) and not delay_us


def mailbox_pause_ms(released: int) -> int:
    """Return how long a mailbox pauses after `released` deliveries in a row without a verdict."""
    beyond = released - released_before_pause_max_messages
    if beyond <= 0:
        return 0
    doublings = min((beyond - 1) // released_per_pause_step_max_messages, _DOUBLINGS_MAX)
    return min(_FIRST_PAUSE_MS << doublings, _PAUSE_MAX_MS)
