"""Where stored messages can be seen: as Maildir files, or only in the journal.

Both follow the journal's events after they are durable; neither is ever asked for a message.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from waypost.relay.errors import RelayError
from waypost.relay.journal.journal import Journal
from waypost.relay.maildir.maildir import DeadLetterFile, Maildir
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.relay.state.payloads import PayloadStore
from waypost.wire import events
from waypost.wire.envelopes import Envelope, encode_envelope, instant

log = logging.getLogger("waypost.relay")


class MailboxMirror(Protocol):
    """Shows what lies in the mailboxes."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """Where to look at a mailbox."""

    def on_registered(self, mailbox: Mailbox) -> None:
        """An endpoint was registered."""

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """An endpoint was unregistered."""

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """A message was stored; `was_dead` if it was a dead letter."""

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """A message became a dead letter."""

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """Something else changes to messages."""


class NoFiles:
    """`storage: journal`: nothing but the journal."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """There is no place to look."""
        return None

    def on_registered(self, mailbox: Mailbox) -> None:
        """Nothing to do."""

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """Nothing to do."""

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """Nothing to do."""

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """Nothing to do."""

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """Nothing to do."""


class MaildirFiles:
    """`storage: maildir`: one file a message.

    A file that cannot be written is no loss, the journal has the message; `on_outcome` is told
    the endpoint and False, and True once a file could be written again, in the writer's thread.
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
        """Mailbox and name of files that are about to go."""
        self._on_outcome = on_outcome
        self._failing: set[str] = set()
        self._open: set[str] = set()

    def path(self, mailbox: Mailbox) -> Path | None:
        """The mailbox's directory."""
        return self._maildir.path(mailbox.hash)

    def on_registered(self, mailbox: Mailbox) -> None:
        """The folders are there when the call returns."""
        self._open.add(mailbox.hash)
        self._maildir.ensure(mailbox.hash)

    def on_unregistered(self, mailbox: Mailbox) -> None:
        """Empty folders go, unless the endpoint was registered again meanwhile; files stay."""
        self._open.discard(mailbox.hash)
        self._later(mailbox, self._remove_if_closed, mailbox.hash)

    def on_stored(self, mailbox: Mailbox, message: Message, *, was_dead: bool) -> None:
        """The message appears in `new/`."""
        content = encode_envelope(self._payloads.stored_envelope(message))
        self._later(mailbox, self._maildir.deliver, mailbox.hash, message.id, content)
        if was_dead:
            self._later(mailbox, self._maildir.remove, mailbox.hash, message.id, "failed")

    def on_dead_lettered(self, mailbox: Mailbox, message: Message) -> None:
        """The message appears in `failed/`, with its reason."""
        maildir, hash_ = self._maildir, mailbox.hash
        try:
            content = dead_letter_file(self._payloads.stored_envelope(message), message)
        except (RelayError, OSError) as problem:
            # The file may be the last good copy: keep it, and not where drop-ins are taken in.
            log.error("dead letter %s cannot be read: %s", message.id, problem)
            self._later(mailbox, maildir.move, hash_, message.id, "new", "cur")
            return
        self._leaving(mailbox, message.id, maildir.deliver, hash_, message.id, content, "failed")
        self._leaving(mailbox, message.id, maildir.remove, hash_, message.id, "cur", "new")

    def on_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        """The files move or go."""
        for event in changes:
            act, *folders = _MOVES[type(event)]
            if act == "move":
                self._later(mailbox, self._maildir.move, mailbox.hash, event.id, *folders)
            else:
                remove = self._maildir.remove
                self._leaving(mailbox, event.id, remove, mailbox.hash, event.id, *folders)

    def _remove_if_closed(self, hash_: str) -> None:
        if hash_ not in self._open:
            self._maildir.remove_mailbox(hash_)

    def _later(self, mailbox: Mailbox, act: Callable[..., None], *arguments: Any) -> None:
        self._journal.after_commit(partial(self._attempt, mailbox.subject, act, arguments))

    def _leaving(
        self, mailbox: Mailbox, name: str, act: Callable[..., None], *arguments: Any
    ) -> None:
        """As `_later`; until it is done, the file in `new/` is known to be an old one of ours."""
        self.leaving.add((mailbox.hash, name))
        self._later(mailbox, act, *arguments)
        self._journal.after_commit(partial(self.leaving.discard, (mailbox.hash, name)))

    def _attempt(self, endpoint: str, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            act(*arguments)
        except OSError as problem:
            log.warning("mailbox of %s not up to date on disk: %s", endpoint, problem)
            self._failing.add(endpoint)
            self._on_outcome(endpoint, False)
            return
        if endpoint in self._failing and act == self._maildir.deliver:
            self._failing.discard(endpoint)
            self._on_outcome(endpoint, True)


def dead_letter_file(envelope: Envelope, message: Message) -> bytes:
    """What lies in `failed/` for a dead letter."""
    failed_at = instant(message.failed_at_us)
    return msgspec.json.encode(DeadLetterFile(envelope, message.reason, failed_at))


_MOVES: dict[type[Any], tuple[str, ...]] = {
    events.Leased: ("move", "new", "cur"),
    events.Returned: ("move", "cur", "new"),
    events.Acked: ("remove", "cur", "new"),
    events.Expired: ("remove", "new", "cur", "failed"),
}
