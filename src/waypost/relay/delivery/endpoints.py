"""Endpoints: the subjects that have a mailbox."""

import logging
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.policy.bounds import endpoints_max
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import validate_subject
from waypost.relay.delivery.forwarding import Partition
from waypost.relay.errors import MailboxUnavailable, UnknownEndpoint
from waypost.relay.maildir.mirror import MailboxMirror
from waypost.relay.state.directories import journaled_directory
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import instant
from waypost.wire.events import EndpointChanged

log = logging.getLogger("waypost.relay")

REPLY_PREFIX = "_reply."
"""Begins the subjects of replies to requests."""


class Endpoint(msgspec.Struct, frozen=True):
    """A registered subject; `maildir_path` is None when mailboxes are not kept as files."""

    subject: str
    hash: str
    maildir_path: Path | None
    registered_at: datetime


class Endpoints:
    """Registers and lists endpoints."""

    def __init__(
        self,
        ledger: Ledger,
        mirror: MailboxMirror,
        probe: Callable[[], None],
        partition: Partition | None,
    ) -> None:
        """Take `probe`, which raises `OSError` if no mailbox can be created."""
        self._cause = ""
        self._partition = partition
        self._probe = probe
        self._ledger = ledger
        self._state = ledger.state
        self._mirror = mirror

    def register(self, subject: str) -> Endpoint:
        """Register `subject` and create its mailbox; an existing one keeps its messages.

        Raises `MailboxUnavailable` if its directory cannot be created, and `OtherPartition` if the
        subject belongs to another relay.
        """
        validate_subject(subject)
        if self._partition is not None:
            self._partition.require(subject)
        mailbox = self._state.mailbox(subject)
        if not mailbox.registered:
            try:
                if len(self._state.endpoints) >= endpoints_max:
                    raise InvalidInput(f"too many endpoints: at most {endpoints_max:,} are allowed")
                self._create(mailbox)
            except BaseException:
                self._state.drop_if_empty(mailbox)
                raise
            self._record(subject, "registered", journaled_directory(mailbox))
        return self._describe(mailbox)

    def make_reply_subject(self) -> str:
        """Return a new reply subject of this partition that cannot be guessed."""
        while True:
            subject = f"{REPLY_PREFIX}{secrets.token_hex(12)}"
            if self._partition is None or self._partition.holds(subject):
                return subject

    def check_problem(self) -> None:
        """Find out whether mailboxes can be created again."""
        if self.problem:
            self._check()
            if not self.problem:
                log.warning("mailboxes can be created again")

    def _create(self, mailbox: Mailbox) -> None:
        """Create the mailbox's files; after a problem of all, not before the next check."""
        if self.problem:
            raise MailboxUnavailable(mailbox.subject, self._cause)
        try:
            self._mirror.on_registered(mailbox)
        except OSError as problem:
            log.error("the mailbox of %s cannot be created: %s", mailbox.subject, problem)
            self._check()
            raise MailboxUnavailable(mailbox.subject, _cause(problem)) from problem

    @property
    def problem(self) -> str:
        """Why no mailbox can be created, whatever its name; empty while they can be."""
        return f"no mailbox can be created: {self._cause}" if self._cause else ""

    def _check(self) -> None:
        try:
            self._probe()
            self._cause = ""
        except OSError as problem:
            self._cause = _cause(problem)

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


def _cause(problem: OSError) -> str:
    """Return an error without the path, which is none of a sender's business."""
    return problem.strerror or type(problem).__name__
