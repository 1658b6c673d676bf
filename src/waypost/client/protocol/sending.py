"""A message to send, as the operation of a frame."""

from datetime import timedelta
from typing import Any

import msgspec

from waypost.client.protocol.framing import FrameLimits
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.wire import frames
from waypost.wire.codecs import Codec
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import encode_payload


def send_operation(
    codec: Codec,
    ref: int,
    message: OutgoingMessage,
    message_id: str,
    reply_within_s: float,
) -> frames.Send:
    """Return the operation that sends `message` as `message_id`, for a frame of `codec`.

    Raises `InvalidMessage` for a message that no relay accepts.
    """
    delay = message.delay
    return frames.Send(
        ref=ref,
        subject=message.subject,
        payload=_encode_payload(codec, message.payload),
        reply_to=message.reply_to,
        budget=_budget(message),
        parent=_parent(message),
        message_id=message_id,
        thread=message.thread,
        reply_within=reply_within_s,
        delay=delay.total_seconds() if isinstance(delay, timedelta) else delay,
        deliver_at=message.deliver_at,
    )


def _encode_payload(codec: Codec, payload: object) -> msgspec.Raw:
    """Encode a payload for a frame of `codec`. Both encodings reject what JSON cannot hold."""
    encoded = encode_payload(payload)
    if codec.is_text:
        return msgspec.Raw(encoded)
    try:
        return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(encoded)))
    except OverflowError as problem:  # an integer of more than 64 bits, valid in JSON
        raise InvalidMessage(f"payload cannot be sent as msgpack: {problem}") from None


def _budget(message: OutgoingMessage) -> dict[str, Any] | None:
    if message.budget is None:
        return None
    if isinstance(message.budget, Budget):
        return msgspec.structs.asdict(message.budget)
    return dict(message.budget)


def _parent(message: OutgoingMessage) -> frames.Parent | None:
    if message.parent is None:
        return None
    return frames.Parent(id=message.parent.id, budget=message.parent.budget)


def oversize_error(size: int | None, limits: FrameLimits) -> InvalidMessage:
    """Return the error for an operation that does not fit into a frame of the relay."""
    actual = "" if size is None else f"{size:,} bytes, "
    return InvalidMessage(
        f"too large for the relay: {actual}at most {limits.frame_max_bytes:,} bytes in one frame"
    )
