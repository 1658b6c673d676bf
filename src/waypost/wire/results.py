"""What callers are told about a publish."""

import msgspec

from waypost.policy.reasons import Reason


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """One endpoint (by hash; empty when the whole publish was refused) and why."""

    endpoint_hash: str
    reason: Reason
    detail: str = ""


class PublishResult(msgspec.Struct, kw_only=True, gc=False):
    """What became of a publish.

    A decision about a message is on disk when you hold this; a refusal of the whole publish
    (`message_id` is empty) is not waited for.

    `message_id` is empty when no message came to be. `retry_after_ms` is how long to wait before
    a rejected publish can pass, where that is known. `mailbox_pressure` maps endpoint hashes to
    how full their mailboxes were, 0.0 to 1.0.
    """

    message_id: str
    delivered_to: int
    rejected: list[Rejection] = []
    retry_after_ms: int = 0
    mailbox_pressure: dict[str, float] = {}
