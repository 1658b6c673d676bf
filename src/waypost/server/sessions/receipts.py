"""Telling senders that their messages were confirmed.

Rule 1  A sender that is connected is told once the confirmation is on disk. One that is away, and
        has a mailbox, finds it there: kept in the same commit as the confirmation itself.
Rule 2  Confirmations make no confirmations.
Rule 3  What one recipient confirms at once is kept as one message, however many it confirms
        (unless that message would be larger than messages may be).
Rule 4  A mailbox that takes no more takes no confirmations either; the log says so.
"""

import logging
from collections.abc import Callable, Iterable

import msgspec

from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.relay.delivery.drafts import Draft
from waypost.relay.relay import Relay
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import DeliveryConfirm

log = logging.getLogger("waypost.server")

_PAIR_MAX_BYTES = 80
"""One kept confirmation as JSON."""
_HEAD_MAX_BYTES = 320
"""What stands around them: the name of the recipient."""


class Confirmed(msgspec.Struct, frozen=True):
    """One message whose recipient is done with it."""

    message_id: str
    sender: str
    was_stored: bool


class _Kept(msgspec.Struct, frozen=True):
    """The payload of kept confirmations: pairs of message id and `was_stored`."""

    recipient: str
    confirmed: list[tuple[str, bool]]


Told = list[tuple[str, DeliveryConfirm]]


class Confirmations:
    """`is_live` says whether an agent is connected."""

    def __init__(self, relay: Relay, is_live: Callable[[str], bool]) -> None:
        self._relay = relay
        self._is_live = is_live

    def note(self, recipient: str, confirmed: Iterable[Confirmed]) -> Told:
        """Keep what is for senders that are away; give what to tell the others, once durable."""
        by_sender: dict[str, list[tuple[str, bool]]] = {}
        for one in confirmed:
            if not is_reserved(one.sender):
                by_sender.setdefault(one.sender, []).append((one.message_id, one.was_stored))
        told: Told = []
        for sender, pairs in by_sender.items():
            if self._is_live(sender):
                told += [(sender, _operation(recipient, *pair)) for pair in pairs]
            elif self._relay.get_endpoint(sender) is not None:
                self._keep(sender, recipient, pairs)
        return told

    def _keep(self, sender: str, recipient: str, pairs: list[tuple[str, bool]]) -> None:
        room = self._relay.settings.max_payload_bytes - _HEAD_MAX_BYTES
        together = max(1, room // _PAIR_MAX_BYTES)
        for begin in range(0, len(pairs), together):
            payload = _Kept(recipient, pairs[begin : begin + together])
            try:
                result = self._relay.submit(Draft(sender, payload, sender=RELAY))
            except (InvalidInput, AccessDenied) as problem:
                log.warning("confirmations for %s are lost: %s", sender, problem)
                continue
            for rejected in result.rejected:
                log.warning("confirmations for %s are lost: %s", sender, rejected.detail)


def unpack(envelope: Envelope) -> list[DeliveryConfirm]:
    """Kept confirmations as operations; the last one has the `id` that is to be confirmed.

    None if it holds no confirmations after all: anybody on the relay's own machine may put a
    message into a mailbox in the relay's name.
    """
    try:
        kept = msgspec.json.decode(envelope.payload, type=_Kept)
    except msgspec.DecodeError:
        return []
    operations = [_operation(kept.recipient, *pair) for pair in kept.confirmed]
    if operations:
        operations[-1].id = envelope.id
    return operations


def _operation(recipient: str, message_id: str, was_stored: bool) -> DeliveryConfirm:
    return DeliveryConfirm(message_id=message_id, recipient=recipient, was_stored=was_stored)
