"""A message an agent wants to send, and how it is written down for the relay."""

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.client.errors import OperationRejected
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.wire.frames import Codec, Error, Parent
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import encode_payload
from waypost.wire.sealing import Card


class Outgoing(OutgoingMessage, frozen=True, kw_only=True):
    """A message to send; `seal_to` is the card of the only agent that may read it."""

    seal_to: Card | None = None

    def check(self) -> None:
        """Check addresses, id and seal. Raises `InvalidSubject` or `InvalidMessage`."""
        OutgoingMessage.check(self)
        if self.seal_to is not None and self.seal_to.subject != self.subject:
            raise InvalidMessage(
                f"sealed to {self.seal_to.subject} but sent to {self.subject}: nobody could read it"
            )

    @property
    def budget_wish(self) -> dict[str, Any] | None:
        """The budget as the relay wants it."""
        if isinstance(self.budget, Budget):
            return msgspec.structs.asdict(self.budget)
        return None if self.budget is None else dict(self.budget)

    @property
    def parent_frame(self) -> Parent | None:
        """The parent as the relay wants it."""
        if self.parent is None:
            return None
        return Parent(id=self.parent.id, budget=self.parent.budget)


def outgoing(wish: Outgoing | Mapping[str, Any]) -> Outgoing:
    """A message from a mapping of the parameters of `send`. Raises `InvalidMessage`."""
    if isinstance(wish, Outgoing):
        return wish
    try:
        return Outgoing(**wish)
    except TypeError as problem:
        raise InvalidMessage(f"not a message to send: {problem}") from None


def encode_payload_for(codec: Codec, payload: object) -> msgspec.Raw:
    """The payload inside a frame of `codec`. What JSON cannot hold is refused in both encodings."""
    encoded = encode_payload(payload)
    if codec.is_text:
        return msgspec.Raw(encoded)
    try:
        return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(encoded)))
    except OverflowError as problem:  # an integer of more than 64 bits, which JSON has room for
        raise InvalidMessage(f"payload cannot be sent as msgpack: {problem}") from None


def rejection(error: Error) -> Exception:
    """The exception for an operation that the relay could not do."""
    if error.reason == "invalid":
        return InvalidMessage(error.error)
    return OperationRejected(error.error, error.reason, error.retry_after_ms)
