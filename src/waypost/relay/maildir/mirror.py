"""The mirror of mailboxes: Maildir files, or nothing.

A mirror follows the journal's events after they are durable; messages are never read from it.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import msgspec

from waypost.files import is_transient
from waypost.relay.errors import RelayError
from waypost.relay.journal.journal import Journal
from waypost.relay.maildir.maildir import DeadLetterFile, Maildir
from waypost.relay.state.mailbox import SCHEDULED, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, file_envelope
from waypost.wire import events
from waypost.wire.envelopes import Envelope, encode_envelope, instant

log = logging.getLogger("waypost.relay")

_UNFINISHED_MAX = 10_000


class MailboxMirror(Protocol):
    """Mirrors the content of mailboxes."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """Return the directory of a mailbox, or None."""

    def on_registered(self, mailbox: Mailbox) -> None:
        """Prepare for the registration of an endpoint. Raises `OSError` if that fails."""

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """Follow the end of a registration."""

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """Follow a stored message, or a scheduled one that is due; `was_dead` if it was a dead
        letter before."""

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """Follow a message that became a dead letter."""

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """Follow leases, returns, acknowledgements and expiries of messages."""


class NoFiles:
    """The mirror of `storage: journal`: none."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """Return None."""
        return None

    def on_registered(self, mailbox: Mailbox) -> None:
        """Do nothing."""

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """Do nothing."""

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """Do nothing."""

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """Do nothing."""

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """Do nothing."""


class MaildirFiles:
    """The mirror of `storage: maildir`: one file per message.

    A file that cannot be written is no loss, because the journal has the message. In that case
    `on_outcome(endpoint, False)` is called in the writer thread, and `on_outcome(endpoint, True)`
    once a file can be written again. While no descriptor is free, changes wait in their order for
    the next commit.

    Files are encoded by the writer thread, one after the other: the messages of a fan-out share one
    payload in memory until then.
    """

    def __init__(
        self,
        maildir: Maildir,
        journal: Journal,
        payloads: PayloadStore,
        on_outcome: Callable[[str, bool], None],
    ) -> None:
        self._maildir = maildir
        self._journal = journal
        self._payloads = payloads
        self.leaving: set[tuple[str, str]] = set()
        """Mailbox hash and name of files that are to be removed, and may still exist."""
        self._unfinished: deque[_Change] = deque()
        self._on_outcome = on_outcome
        self._failing: set[str] = set()
        self._open: set[str] = set()

    def path(self, mailbox: Mailbox) -> Path | None:
        """Return the mailbox's directory."""
        return self._maildir.path(mailbox.hash)

    def on_registered(self, mailbox: Mailbox) -> None:
        """Create the folders. Raises `OSError`."""
        self._open.add(mailbox.hash)
        try:
            self._maildir.ensure(mailbox.hash)
        except OSError:
            self._open.discard(mailbox.hash)
            raise

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """Delete empty folders, unless the endpoint is registered again by then."""
        self._open.discard(mailbox.hash)
        self._later(mailbox, self._remove_if_closed, mailbox.hash)

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """Write the message to `new/`; a scheduled one has no file before it is due."""
        if message.state is not SCHEDULED:
            event, payload = self._payloads.read(message)
            self._later(mailbox, self._write, mailbox.hash, message.id, event, payload)
        if was_dead:
            self._later(mailbox, self._maildir.remove, mailbox.hash, message.id, "failed")

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """Write the message to `failed/`, with its reason."""
        maildir, hash_ = self._maildir, mailbox.hash
        try:
            event, payload = self._payloads.read(message)
        except (RelayError, OSError) as problem:
            # The file may be the last good copy: keep it, but not where drop-ins are read.
            log.error("dead letter %s is unreadable: %s", message.id, problem)
            self._leaving(mailbox, message.id, maildir.move, hash_, message.id, "new", "cur")
            return
        died = (message.reason, instant(message.failed_at_us))
        self.leaving.add((hash_, message.id))
        self._later(mailbox, self._write, hash_, message.id, event, payload, died)
        self._leaving(mailbox, message.id, maildir.remove, hash_, message.id, "cur", "new")

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """Move or remove the files."""
        for event in chain.from_iterable(map(events.split, changes)):
            act, *folders = _MOVES[type(event)]
            if act == "move":
                self._later(mailbox, self._maildir.move, mailbox.hash, event.id, *folders)
            else:
                remove = self._maildir.remove
                self._leaving(mailbox, event.id, remove, mailbox.hash, event.id, *folders)

    def _write(
        self,
        hash_: str,
        name: str,
        event: events.Accepted | events.Rejected,
        payload: bytes,
        died: tuple[str, datetime] | None = None,
    ) -> None:
        """Write a message to `new/`, or with reason and time of its failure to `failed/`."""
        envelope = file_envelope(event, msgspec.Raw(payload))
        if died is None:
            self._maildir.deliver(hash_, name, encode_envelope(envelope))
        else:
            content = msgspec.json.encode(DeadLetterFile(envelope, *died))
            self._maildir.deliver(hash_, name, content, "failed")

    def _remove_if_closed(self, hash_: str) -> None:
        if hash_ not in self._open:
            self._maildir.remove_mailbox(hash_)

    def _later(self, mailbox: Mailbox, act: Callable[..., None], *arguments: Any) -> None:
        change = _Change(mailbox.subject, act, arguments)
        self._journal.after_commit(partial(self._attempt, change))

    def _leaving(
        self, mailbox: Mailbox, name: str, act: Callable[..., None], *arguments: Any
    ) -> None:
        """Remove a file later; until then, it is not taken for a drop-in."""
        self.leaving.add((mailbox.hash, name))
        change = _Change(mailbox.subject, act, arguments, leaves=(mailbox.hash, name))
        self._journal.after_commit(partial(self._attempt, change))

    def _attempt(self, change: "_Change") -> None:
        """Carry out the changes that waited for a descriptor, then this one."""
        waiting = self._unfinished
        waiting.append(change)
        while waiting:
            first = waiting[0]
            try:
                first.act(*first.arguments)
            except OSError as problem:
                if is_transient(problem) and len(waiting) < _UNFINISHED_MAX:
                    return
                self._failed(first.endpoint, problem)
            else:
                self._succeeded(first)
            waiting.popleft()

    def _failed(self, endpoint: str, problem: OSError) -> None:
        log.warning("mailbox files of %s are not up to date: %s", endpoint, problem)
        self._failing.add(endpoint)
        self._on_outcome(endpoint, False)

    def _succeeded(self, change: "_Change") -> None:
        if change.leaves is not None:
            self.leaving.discard(change.leaves)
        if change.endpoint in self._failing and change.act == self._write:
            self._failing.discard(change.endpoint)
            self._on_outcome(change.endpoint, True)


class _Change(msgspec.Struct, frozen=True, gc=False):
    """A change of the files of `endpoint`; `leaves` is the file that is gone after it."""

    endpoint: str
    act: Callable[..., None]
    arguments: tuple[Any, ...]
    leaves: tuple[str, str] | None = None


def dead_letter_file(envelope: Envelope, message: Message) -> bytes:
    """Return the content of a dead letter's file in `failed/`."""
    failed_at = instant(message.failed_at_us)
    return msgspec.json.encode(DeadLetterFile(envelope, message.reason, failed_at))


_MOVES: dict[type[Any], tuple[str, ...]] = {
    events.Leased: ("move", "new", "cur"),
    events.Returned: ("move", "cur", "new"),
    events.Acked: ("remove", "cur", "new"),
    events.Expired: ("remove", "new", "cur", "failed"),
    events.Cancelled: ("remove", "new"),
}
