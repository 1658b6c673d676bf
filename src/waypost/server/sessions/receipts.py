"""Delivery receipts: senders learn that their messages were acknowledged.

Rule 1  A connected sender gets the receipt once the acknowledgement is on disk. A sender that is
        disconnected and has a mailbox finds it there, stored in the same commit.
Rule 2  Receipts have no receipts.
Rule 3  All messages that one recipient acknowledges at once are stored as one receipt, split only
        where it would exceed the size limit of messages.
Rule 4  A full mailbox accepts no receipts either; the loss is logged.
"""

import logging
from collections.abc import Callable, Iterable

import msgspec

from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.relay.relay import Draft, Relay
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import DeliveryConfirm

log = logging.getLogger("waypost.server")

_PAIR_MAX_BYTES = 80
"""One message in a stored receipt, as JSON."""
_HEAD_MAX_BYTES = 320
"""The rest of a stored receipt: the name of the recipient."""


class AckedMessage(msgspec.Struct, frozen=True):
    """A message that its recipient has acknowledged."""

    message_id: str
    sender: str
    was_stored: bool


class _StoredReceipt(msgspec.Struct, frozen=True):
    """The payload of a stored receipt: pairs of message id and `was_stored`."""

    recipient: str
    confirmed: list[tuple[str, bool]]


LiveReceipts = list[tuple[str, DeliveryConfirm]]
"""Receipts for connected senders, each with its sender."""


class Receipts:
    """Creates receipts; `is_connected` returns whether an agent is connected."""

    def __init__(self, relay: Relay, is_connected: Callable[[str], bool]) -> None:
        self._relay = relay
        self._is_connected = is_connected

    def create(self, recipient: str, acked: Iterable[AckedMessage]) -> LiveReceipts:
        """Store receipts for disconnected senders; return the others, to send once durable."""
        by_sender: dict[str, list[tuple[str, bool]]] = {}
        for one in acked:
            if not is_reserved(one.sender):
                by_sender.setdefault(one.sender, []).append((one.message_id, one.was_stored))
        live: LiveReceipts = []
        for sender, pairs in by_sender.items():
            if self._is_connected(sender):
                live += [(sender, _operation(recipient, *pair)) for pair in pairs]
            elif self._relay.get_endpoint(sender) is not None:
                self._store(sender, recipient, pairs)
        return live

    def _store(self, sender: str, recipient: str, pairs: list[tuple[str, bool]]) -> None:
        room = self._relay.settings.max_payload_bytes - _HEAD_MAX_BYTES
        together = max(1, room // _PAIR_MAX_BYTES)
        for begin in range(0, len(pairs), together):
            payload = _StoredReceipt(recipient, pairs[begin : begin + together])
            try:
                result = self._relay.submit(Draft(sender, payload, sender=RELAY))
            except (InvalidInput, AccessDenied) as problem:
                log.warning("receipts for %s are lost: %s", sender, problem)
                continue
            for rejected in result.rejected:
                log.warning("receipts for %s are lost: %s", sender, rejected.detail)


def unpack_receipt(envelope: Envelope) -> list[DeliveryConfirm]:
    """Return a stored receipt as operations; the last has the `id` to acknowledge.

    Empty if the message is no receipt: any process on the relay's machine can put a message into
    a mailbox in the relay's name.
    """
    try:
        stored = msgspec.json.decode(envelope.payload, type=_StoredReceipt)
    except msgspec.DecodeError:
        return []
    operations = [_operation(stored.recipient, *pair) for pair in stored.confirmed]
    if operations:
        operations[-1].id = envelope.id
    return operations


def _operation(recipient: str, message_id: str, was_stored: bool) -> DeliveryConfirm:
    return DeliveryConfirm(message_id=message_id, recipient=recipient, was_stored=was_stored)
