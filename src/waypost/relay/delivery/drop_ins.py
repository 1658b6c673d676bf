"""Drop-ins: messages put into a mailbox by another process, the Maildir way.

Write a file to `tmp/`, rename it to `new/`. Its content is a JSON object with at least `sender`
and `payload`; `subject`, `reply_to` and `budget` are optional. The relay puts it through the
same admission as any publish; what cannot be taken is moved to `failed/` with the reason.
"""

import hashlib
import logging
import os
from collections.abc import Container
from datetime import datetime
from functools import partial

import msgspec

from waypost.policy.errors import InvalidMessage, WaypostError
from waypost.relay.delivery.drafts import Draft
from waypost.relay.delivery.publish import Publishing
from waypost.relay.errors import RelayStopped
from waypost.relay.maildir.maildir import DropInFile, Maildir
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import instant
from waypost.wire.identifiers import validate_message_id

log = logging.getLogger("waypost.relay")


class RejectedDropIn(msgspec.Struct):
    """What lies in `failed/` for a file that could not be taken."""

    content: str
    reason: str
    failed_at: datetime


class DropIns:
    """Takes dropped files in."""

    def __init__(
        self,
        ledger: Ledger,
        maildir: Maildir,
        publishing: Publishing,
        leaving: Container[tuple[str, str]],
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._maildir = maildir
        self._publishing = publishing
        self._leaving = leaving
        self._by_hash: dict[str, Mailbox] = {}

    def scan_all(self) -> None:
        """Look at every file in every mailbox."""
        for mailbox in list(self._state.registered()):
            self.scan(mailbox.hash)

    def scan(self, hash_: str) -> None:
        """Look at every file in one mailbox."""
        for name in sorted(self._maildir.sizes(hash_, "new")):
            self.check(hash_, name)

    def check(self, hash_: str, name: str) -> None:
        """Look at one file in `new/`: one of ours, or dropped in."""
        mailbox = self._mailbox(hash_)
        if mailbox is None or name in mailbox.live or (hash_, name) in self._leaving:
            return
        if not self._ledger.journal.full:
            self._take(mailbox, name)

    def _mailbox(self, hash_: str) -> Mailbox | None:
        mailbox = self._by_hash.get(hash_)
        if mailbox is None or not mailbox.registered:
            self._by_hash = {one.hash: one for one in self._state.registered()}
            mailbox = self._by_hash.get(hash_)
        return mailbox

    def _take(self, mailbox: Mailbox, name: str) -> None:
        try:
            content = self._maildir.read(mailbox.hash, "new", name)
        except (FileNotFoundError, IsADirectoryError):
            return  # gone again: one of ours that was consumed meanwhile; or no message at all
        message_id = _message_id(name, content)
        is_dead_letter = name in mailbox.dead
        try:
            dropped = msgspec.json.decode(content, type=DropInFile)
            result = self._publishing.publish(
                Draft(
                    subject=mailbox.subject,
                    payload=dropped.payload,
                    sender=dropped.sender,
                    reply_to=dropped.reply_to,
                    budget=dropped.budget,
                    message_id=message_id,
                )
            )
            reason = ", ".join(f"{one.reason}: {one.detail}" for one in result.rejected)
        except RelayStopped:
            return  # it waits for the next start
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WaypostError) as problem:
            reason = str(problem)
        if reason:
            self._reject(mailbox, name, content, reason, is_dead_letter=is_dead_letter)
        elif message_id != name:
            self._remove_once_durable(mailbox, name)

    def _remove_once_durable(self, mailbox: Mailbox, name: str) -> None:
        """A crash must leave the file or the message, so the file goes last."""
        remove = partial(self._maildir.discard, mailbox.hash, name)
        waiting = self._ledger.journal.barrier()
        if waiting is None:  # the same file again: its message has been there for a while
            remove()
        else:
            waiting.add_done_callback(lambda done: None if done.exception() else remove())

    def _reject(
        self, mailbox: Mailbox, name: str, content: bytes, reason: str, *, is_dead_letter: bool
    ) -> None:
        """Move the file to `failed/`; the file of a dead letter by that name stays what it is."""
        log.warning("drop-in %r for %s refused: %s", name, mailbox.subject, reason)
        failed_at = instant(self._ledger.now_us())
        rejected = RejectedDropIn(content.decode(errors="replace"), reason, failed_at)
        kept = f"{name}.{hashlib.sha256(content).hexdigest()[:12]}" if is_dead_letter else name
        self._maildir.deliver(mailbox.hash, kept, msgspec.json.encode(rejected), "failed")
        self._maildir.discard(mailbox.hash, name)


def _message_id(name: str, content: bytes) -> str:
    """The file's own name where it can be an id: then taking the file twice is harmless."""
    try:
        return validate_message_id(name)
    except InvalidMessage:
        return f"drop-{hashlib.sha256(os.fsencode(name) + content).hexdigest()[:32]}"
