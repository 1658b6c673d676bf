"""What a session tells its shell. Operations that need no more words are told as they came."""

import msgspec

from waypost.wire.frames import (
    DeliveryConfirm,
    Error,
    Live,
    Message,
    QueueFull,
    QueueStatus,
    Signalled,
    Welcome,
)
from waypost.wire.results import PublishResult


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The relay has decided about the send `ref`."""

    ref: int
    result: PublishResult


class OperationFailed(msgspec.Struct, frozen=True):
    """The operation `ref` could not be done."""

    ref: int
    problem: Exception


class Fetched(msgspec.Struct, frozen=True):
    """The answer to the fetch `ref`. `came` counts those too that are not for the application."""

    ref: int
    messages: list[Message]
    came: int


class Replied(msgspec.Struct, frozen=True):
    """The reply to the request that was sent as `message_id`; it is confirmed already."""

    message_id: str
    message: Message


SessionEvent = (
    Message
    | Answered
    | OperationFailed
    | Fetched
    | Replied
    | DeliveryConfirm
    | QueueStatus
    | Live
    | QueueFull
    | Signalled
    | Welcome
    | Error
)
"""A `Message` is one for the application. An `Error` is about no operation in particular."""
