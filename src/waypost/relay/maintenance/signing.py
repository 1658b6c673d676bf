"""Signs the journal now and then, so that a copy of it can be shown to be unchanged.

A signature confirms the chain of batches up to it. It is an event like any other, and the next
signature confirms it, too. An idle relay signs nothing.
"""

from typing import Protocol

from waypost.relay.clock import Cancel, Timers
from waypost.relay.state.ledger import Ledger
from waypost.wire.events import SignedCheckpoint
from waypost.wire.handshake import checkpoint_text

INTERVAL_US = 60_000_000


class Signer(Protocol):
    """The key of a relay; `sign` returns the Ed25519 signature of a text, as base64url."""

    @property
    def public_key(self) -> str:
        """The public key, as base64url."""

    def sign(self, text: bytes) -> str:
        """Return the signature of a text."""


class JournalSigner:
    """Adds signed checkpoints to a journal, at intervals while there is traffic."""

    def __init__(self, ledger: Ledger, timers: Timers, signer: Signer) -> None:
        self._ledger = ledger
        self._timers = timers
        self._signer = signer
        self._signed_seq = 0
        self._cancel: Cancel
        self._wait()

    def stop(self) -> None:
        """Sign what is left, and sign no more."""
        self._cancel()
        self.sign()

    def sign(self) -> None:
        """Sign what was journaled since the last signature, if anything was."""
        ledger, journal = self._ledger, self._ledger.journal
        if ledger.state.seq == self._signed_seq or journal.full or journal.failure is not None:
            return
        journal.close_batch()
        key, head = self._signer.public_key, journal.head
        seq, at_us = ledger.state.seq + 1, ledger.now_us()
        text = checkpoint_text(public_key=key, seq=seq, at_us=at_us, head=head)
        signature = self._signer.sign(text)
        ledger.record(SignedCheckpoint(at_us=at_us, head=head, key=key, signature=signature))
        self._signed_seq = seq

    def _wait(self) -> None:
        """Set the timer for the next signature."""
        self._cancel = self._timers.call_at(self._ledger.now_us() + INTERVAL_US, self._tick)

    def _tick(self) -> None:
        self.sign()
        self._wait()
