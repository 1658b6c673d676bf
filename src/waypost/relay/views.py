"""Where stored messages can be seen: as Maildir files, or only in the journal.

Both follow the journal's events after they are durable; neither is ever asked for a message.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from waypost.relay.journal import Journal
from waypost.relay.mailbox import Mailbox
from waypost.relay.maildir import DeadLetterFile, Maildir
from waypost.wire import events
from waypost.wire.envelopes import Envelope, instant

log = logging.getLogger("waypost.relay")


class MailboxView(Protocol):
    """Shows what lies in the mailboxes."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """Where to look at a mailbox."""

    def opened(self, mailbox: Mailbox) -> None:
        """An endpoint was registered."""

    def closed(self, mailbox: Mailbox) -> None:
        """An endpoint was unregistered."""

    def stored(self, mailbox: Mailbox, name: str, content: bytes, *, again: bool = False) -> None:
        """A message was stored; `again` if it was a dead letter."""

    def buried(self, mailbox: Mailbox, envelope: Envelope, reason: str, at_us: int) -> None:
        """A message became a dead letter."""

    def followed(self, mailbox: Mailbox, event: events.MailboxEvent) -> None:
        """Something else happened to a message."""


class NoFiles:
    """`storage: journal`: nothing but the journal."""

    def path(self, mailbox: Mailbox) -> Path | None:
        """There is no place to look."""
        return None

    def opened(self, mailbox: Mailbox) -> None:
        """Nothing to do."""

    def closed(self, mailbox: Mailbox) -> None:
        """Nothing to do."""

    def stored(self, mailbox: Mailbox, name: str, content: bytes, *, again: bool = False) -> None:
        """Nothing to do."""

    def buried(self, mailbox: Mailbox, envelope: Envelope, reason: str, at_us: int) -> None:
        """Nothing to do."""

    def followed(self, mailbox: Mailbox, event: events.MailboxEvent) -> None:
        """Nothing to do."""


class MaildirFiles:
    """`storage: maildir`: one file a message.

    A file that cannot be written is no loss, the journal has the message; `on_failure` is told
    the endpoint, in the writer's thread.
    """

    def __init__(
        self, maildir: Maildir, journal: Journal, on_failure: Callable[[str], None]
    ) -> None:
        self._maildir = maildir
        self._journal = journal
        self._on_failure = on_failure

    def path(self, mailbox: Mailbox) -> Path | None:
        """The mailbox's directory."""
        return self._maildir.path(mailbox.hash)

    def opened(self, mailbox: Mailbox) -> None:
        """The folders are there when the call returns."""
        self._maildir.ensure(mailbox.hash)

    def closed(self, mailbox: Mailbox) -> None:
        """Empty folders go; files stay."""
        self._later(mailbox, self._maildir.remove_mailbox, mailbox.hash)

    def stored(self, mailbox: Mailbox, name: str, content: bytes, *, again: bool = False) -> None:
        """The message appears in `new/`."""
        self._later(mailbox, self._maildir.deliver, mailbox.hash, name, content)
        if again:
            self._later(mailbox, self._maildir.remove, mailbox.hash, name, "failed")

    def buried(self, mailbox: Mailbox, envelope: Envelope, reason: str, at_us: int) -> None:
        """The message appears in `failed/`, with its reason."""
        content = msgspec.json.encode(DeadLetterFile(envelope, reason, instant(at_us)))
        maildir, hash_ = self._maildir, mailbox.hash
        self._later(mailbox, maildir.deliver, hash_, envelope.id, content, "failed")
        self._later(mailbox, maildir.remove, hash_, envelope.id, "cur", "new")

    def followed(self, mailbox: Mailbox, event: events.MailboxEvent) -> None:
        """The file moves or goes."""
        act, *folders = _MOVES[type(event)]
        maildir = self._maildir
        operation: Callable[..., None] = maildir.move if act == "move" else maildir.remove
        self._later(mailbox, operation, mailbox.hash, event.id, *folders)

    def _later(self, mailbox: Mailbox, act: Callable[..., None], *arguments: Any) -> None:
        self._journal.after_commit(partial(self._attempt, mailbox.subject, act, arguments))

    def _attempt(self, endpoint: str, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            act(*arguments)
        except OSError as problem:
            log.warning("mailbox of %s not up to date on disk: %s", endpoint, problem)
            self._on_failure(endpoint)


_MOVES: dict[type[Any], tuple[str, ...]] = {
    events.Leased: ("move", "new", "cur"),
    events.Returned: ("move", "cur", "new"),
    events.Acked: ("remove", "cur", "new"),
    events.Expired: ("remove", "new", "cur", "failed"),
}
