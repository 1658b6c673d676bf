"""Delivery receipts: senders learn that their messages were acknowledged.

Rule 1  A connected sender gets the receipt once the acknowledgement is on disk, and acknowledges
        it. What it has not acknowledged when its connection ends is stored in its mailbox, and so
        is what it gets beyond a bound. A sender that is disconnected and has a mailbox finds it
        there, stored in the same commit, or forwarded if that is in another partition.
Rule 2  Receipts have no receipts.
Rule 3  All messages that one recipient acknowledges at once are stored as one receipt, split only
        where it would exceed the size limit of messages.
Rule 4  A full mailbox has room for receipts up to a bound (`relayMessages`); beyond, the loss is
        logged.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec

from waypost.policy.bounds import frame_max_operations, live_receipts_max_operations
from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.relay.relay import Draft, Relay
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import DeliveryConfirm, DeliveryConfirms

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


class Receipt(msgspec.Struct, frozen=True):
    """The messages that a recipient has acknowledged: pairs of message id and `was_stored`.

    It is the payload of a stored receipt.
    """

    recipient: str
    confirmed: list[tuple[str, bool]]


LiveReceipts = list[tuple[str, Receipt]]
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
            by_sender.setdefault(one.sender, []).append((one.message_id, one.was_stored))
        live: LiveReceipts = []
        for sender, pairs in by_sender.items():
            if self._is_connected(sender):
                live.append((sender, Receipt(recipient, pairs)))
            elif not is_reserved(sender):
                self._store(sender, recipient, pairs)
        return live

    def store(self, sender: str, receipts: Iterable[Receipt]) -> None:
        """Store receipts that `sender` has not acknowledged."""
        by_recipient: dict[str, list[tuple[str, bool]]] = {}
        for one in receipts:
            by_recipient.setdefault(one.recipient, []).extend(one.confirmed)
        for recipient, pairs in by_recipient.items():
            self._store(sender, recipient, pairs)

    def _store(self, sender: str, recipient: str, pairs: list[tuple[str, bool]]) -> None:
        if self._relay.get_endpoint(sender) is None and not self._relay.is_elsewhere(sender):
            return
        room = self._relay.settings.max_payload_bytes - _HEAD_MAX_BYTES
        together = max(1, room // _PAIR_MAX_BYTES)
        for begin in range(0, len(pairs), together):
            payload = Receipt(recipient, pairs[begin : begin + together])
            try:
                result = self._relay.submit(Draft(sender, payload, sender=RELAY))
            except (InvalidInput, AccessDenied) as problem:
                log.warning("receipts for %s are lost: %s", sender, problem)
                continue
            for rejected in result.rejected:
                log.warning("receipts for %s are lost: %s", sender, rejected.detail)


class UnackedReceipts:
    """The receipts that a connected agent was sent and has not acknowledged.

    Those that are sent at once are acknowledged at once, by one id.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Sequence[Receipt]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Return whether the agent must acknowledge some before it is sent more."""
        return self._count >= live_receipts_max_operations

    def add(self, receipts: Sequence[Receipt]) -> str:
        """Add receipts that are sent now; return their id."""
        receipt_id = secrets.token_hex(16)
        self._by_id[receipt_id] = receipts
        self._count += _count(receipts)
        return receipt_id

    def ack(self, ids: Sequence[str]) -> list[str]:
        """Remove those that are acknowledged; return the ids that are none of theirs."""
        if not self._by_id:
            return list(ids)
        others = []
        for one in ids:
            receipts = self._by_id.pop(one, None)
            if receipts is None:
                others.append(one)
            else:
                self._count -= _count(receipts)
        return others

    def take_all(self) -> list[Receipt]:
        """Remove and return all of them, in the order in which they were sent."""
        found = [one for receipts in self._by_id.values() for one in receipts]
        self._by_id, self._count = {}, 0
        return found


def _count(receipts: Iterable[Receipt]) -> int:
    return sum(len(one.confirmed) for one in receipts)


def unpack_receipt(envelope: Envelope) -> Receipt | None:
    """Return a stored receipt; None if the message is none: any process on the relay's machine can
    put a message into a mailbox in the relay's name."""
    try:
        stored = msgspec.json.decode(envelope.payload, type=Receipt)
    except msgspec.DecodeError:
        return None
    return stored if stored.confirmed else None


def receipt_operations(
    receipts: Iterable[Receipt], receipt_id: str, *, batches: bool
) -> list[DeliveryConfirm | DeliveryConfirms]:
    """Return receipts as operations, for an agent that reads `batches` or one that does not.

    The last has the id to acknowledge.
    """
    operations: list[DeliveryConfirm | DeliveryConfirms] = []
    for one in receipts:
        whom, pairs = one.recipient, one.confirmed
        if not batches:
            operations += (
                DeliveryConfirm(message_id=message_id, recipient=whom, was_stored=was_stored)
                for message_id, was_stored in pairs
            )
            continue
        for begin in range(0, len(pairs), frame_max_operations):
            part = pairs[begin : begin + frame_max_operations]
            operations.append(DeliveryConfirms(recipient=whom, confirmed=part))
    operations[-1].id = receipt_id
    return operations
