"""A message to send, before it has an envelope: the one shape all senders share.

    OutgoingMessage       subject, payload, reply_to, budget, parent, message_id, thread,
    │                     delay, deliver_at
    ├── relay Draft       + sender, network
    └── client Outgoing   + seal_to, reply_within

`frames.Send` and `http_bodies.NewMessage` hold the same fields as a frame and a request body do,
each with the types its decoder checks.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from waypost.policy.bounds import number_max, wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.schedules import Delay, due_time_us
from waypost.policy.subjects import is_subject, validate_pattern, validate_subject
from waypost.wire.envelopes import Envelope
from waypost.wire.identifiers import validate_message_id, validate_thread


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """One message to send.

    `parent` is the message it follows from. `budget` may only narrow what the parent and the relay
    allow. A `message_id` that was sent before is stored once; without one the message gets a new
    id. `thread` names a conversation that begins here; a message with a parent has its parent's.
    With a `delay` in seconds, or at the instant `deliver_at`, it is delivered later.
    """

    subject: str
    payload: object
    reply_to: str | None = None
    budget: Budget | Mapping[str, Any] | None = None
    parent: Envelope | None = None
    message_id: str | None = None
    thread: str | None = None
    delay: Delay | None = None
    deliver_at: datetime | None = None

    def check(self) -> None:
        """Check addresses, id and time. Raises `InvalidSubject` or `InvalidMessage`."""
        if not is_subject(self.subject):
            validate_pattern(self.subject)
        if self.reply_to is not None:
            validate_subject(self.reply_to)
        if self.message_id is not None:
            validate_message_id(self.message_id)
        if self.thread is not None:
            validate_thread(self.thread)
        if self.delay is not None or self.deliver_at is not None:
            limit_ms = wait_max_s * 1000 if self.deliver_at is None else number_max
            due_time_us(self.delay, self.deliver_at, 0, limit_ms)
