"""The decision of one partition about a message that another one forwarded."""

import msgspec

from waypost.wire.results import Rejection


class ForwardOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`endpoints` are the endpoints of a pattern that decided, so that its sender has written to
    them. With an `error`, the message is not valid there, and nothing was decided."""

    delivered_to: int = 0
    rejected: tuple[Rejection, ...] = ()
    retry_after_ms: int = 0
    endpoints: tuple[str, ...] = ()
    error: str = ""
