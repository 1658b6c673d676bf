"""Events a session emits. Frames that need no translation are emitted unchanged."""

import msgspec

from waypost.wire.frames import (
    Answer,
    DeliveryConfirm,
    Error,
    Live,
    Message,
    QueueFull,
    QueueStatus,
    RequestFailure,
    Signalled,
    Welcome,
)
from waypost.wire.results import PublishResult


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The relay's result for the send `ref`."""

    ref: int
    result: PublishResult


class OperationFailed(msgspec.Struct, frozen=True):
    """The operation `ref` failed with `problem`."""

    ref: int
    problem: Exception


class Fetched(msgspec.Struct, frozen=True):
    """The answer to the fetch `ref`.

    `total` also counts messages withheld from the application: duplicates and blocked senders.
    """

    ref: int
    messages: list[Message]
    total: int


class Replied(msgspec.Struct, frozen=True):
    """The reply to the request `message_id`, already acknowledged."""

    message_id: str
    message: Message


SessionEvent = (
    Message
    | Answered
    | OperationFailed
    | Fetched
    | Replied
    | Answer
    | DeliveryConfirm
    | RequestFailure
    | QueueStatus
    | Live
    | QueueFull
    | Signalled
    | Welcome
    | Error
)
"""A `Message` is for the application. An `Error` concerns the connection, not one operation."""
