"""Endpoints: the subjects that have a mailbox."""

from datetime import datetime
from pathlib import Path

import msgspec

from waypost.policy.bounds import endpoints_max
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import validate_subject
from waypost.relay.delivery.requests import REPLY_PREFIX
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.maildir.mirror import MailboxMirror
from waypost.relay.state.directories import journaled_directory
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import instant
from waypost.wire.events import EndpointChanged


class Endpoint(msgspec.Struct, frozen=True):
    """A registered subject; `maildir_path` is None when mailboxes are not kept as files."""

    subject: str
    hash: str
    maildir_path: Path | None
    registered_at: datetime


class Endpoints:
    """Registers and lists endpoints."""

    def __init__(self, ledger: Ledger, mirror: MailboxMirror) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._mirror = mirror

    def register(self, subject: str) -> Endpoint:
        """Register `subject` and create its mailbox; an existing one keeps its messages."""
        validate_subject(subject)
        mailbox = self._state.mailbox(subject)
        if not mailbox.registered:
            if len(self._state.endpoints) >= endpoints_max:
                raise InvalidInput(f"too many endpoints: at most {endpoints_max:,} are allowed")
            self._mirror.on_registered(mailbox)
            self._record(subject, "registered", journaled_directory(mailbox))
        return self._describe(mailbox)

    def unregister(self, subject: str) -> None:
        """Accept no more messages for `subject`; pending ones are kept until it registers again."""
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is None or not mailbox.registered:
            raise UnknownEndpoint(subject)
        self._record(subject, "unregistered")
        if mailbox.empty:
            self._mirror.on_unregistered(mailbox)

    def get(self, subject: str) -> Endpoint | None:
        """Return the endpoint registered under `subject`, or None."""
        mailbox = self._state.mailboxes.get(subject)
        return self._describe(mailbox) if mailbox is not None and mailbox.registered else None

    def listing(self) -> list[Endpoint]:
        """Return every registered endpoint, in order of registration."""
        return [self._describe(mailbox) for mailbox in self._state.registered()]

    def end_old_requests(self) -> None:
        """Unregister the reply subjects of an earlier run."""
        for mailbox in list(self._state.registered()):
            if mailbox.subject.startswith(REPLY_PREFIX):
                self.unregister(mailbox.subject)

    def _describe(self, mailbox: Mailbox) -> Endpoint:
        path = self._mirror.path(mailbox)
        return Endpoint(mailbox.subject, mailbox.hash, path, instant(mailbox.since_us))

    def _record(self, subject: str, action: str, directory: str = "") -> None:
        at_us = self._ledger.now_us()
        self._ledger.record(
            EndpointChanged(at_us=at_us, endpoint=subject, action=action, directory=directory)
        )
