"""Drop-ins: messages that another process puts into a mailbox, the Maildir way.

Write a file to `tmp/`, then rename it to `new/`. Its content is a JSON object with at least
`sender` and `payload`; `reply_to`, `budget` and `thread` are optional. The relay admits it like
any publish; a rejected file is moved to `failed/` with the reason.

A file that was not seen to come from `tmp/` may be unfinished. It is published as soon as it is a
complete document, and rejected only once it has not changed for a minute.

Only regular files of bounded size are read: a link is not followed, a pipe not waited for.
"""

import asyncio
import errno
import hashlib
import logging
import os
from collections.abc import Container
from datetime import datetime
from functools import partial

import msgspec

from waypost.files import is_transient
from waypost.policy.bounds import turn_max_mailboxes
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

_UNFINISHED_US = 60_000_000
"""A file that changed within this time may still be written."""


class RejectedDropIn(msgspec.Struct):
    """The content of a rejected drop-in's file in `failed/`."""

    content: str
    reason: str
    failed_at: datetime


class DropIns:
    """Publishes dropped files."""

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
        """Check every file in every mailbox."""
        for mailbox in list(self._state.registered()):
            self.scan(mailbox.hash)

    async def scan_in_turns(self) -> None:
        """Check every file in every mailbox, with turns for other tasks."""
        for searched, mailbox in enumerate(list(self._state.registered()), start=1):
            self.scan(mailbox.hash)
            if not searched % turn_max_mailboxes:
                await asyncio.sleep(0)

    def scan(self, hash_: str) -> None:
        """Check every file in one mailbox."""
        for name in sorted(self._maildir.sizes(hash_, "new")):
            self.check(hash_, name, may_be_unfinished=True)

    def check(self, hash_: str, name: str, *, may_be_unfinished: bool = False) -> bool:
        """Check one file in `new/`, and publish it unless it is the relay's own.

        Return False if it must be checked again later, because it seems unfinished.
        """
        mailbox = self._mailbox(hash_)
        if mailbox is None or name in mailbox.live or (hash_, name) in self._leaving:
            return True
        if self._ledger.journal.full:
            return True  # once there is room, every mailbox is scanned
        return self._publish(mailbox, name, may_be_unfinished)

    def _mailbox(self, hash_: str) -> Mailbox | None:
        mailbox = self._by_hash.get(hash_)
        if mailbox is None or not mailbox.registered:
            self._by_hash = {one.hash: one for one in self._state.registered()}
            mailbox = self._by_hash.get(hash_)
        return mailbox

    def _publish(self, mailbox: Mailbox, name: str, may_be_unfinished: bool) -> bool:
        try:
            content = self._maildir.read(mailbox.hash, "new", name)
        except FileNotFoundError:
            return True  # the relay's own, and consumed meanwhile
        except OSError as problem:
            if is_transient(problem):
                raise
            self._pass_over(mailbox, name, problem)
            return True
        try:
            dropped = msgspec.json.decode(content, type=DropInFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            if may_be_unfinished and self._is_recent(mailbox, name):
                return False
            is_dead_letter = name in mailbox.dead
            self._reject(mailbox, name, content, str(problem), is_dead_letter=is_dead_letter)
            return True
        self._admit(mailbox, name, content, dropped)
        return True

    def _admit(self, mailbox: Mailbox, name: str, content: bytes, dropped: DropInFile) -> None:
        message_id = _message_id(name, content)
        is_dead_letter = name in mailbox.dead
        try:
            result = self._publishing.publish(
                Draft(
                    subject=mailbox.subject,
                    payload=dropped.payload,
                    sender=dropped.sender,
                    reply_to=dropped.reply_to,
                    budget=dropped.budget,
                    message_id=message_id,
                    thread=dropped.thread,
                )
            )
            reason = ", ".join(f"{one.reason}: {one.detail}" for one in result.rejected)
        except RelayStopped:
            return  # it is published after the next start
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WaypostError) as problem:
            reason = str(problem)  # a payload is decoded only here
        if reason:
            self._reject(mailbox, name, content, reason, is_dead_letter=is_dead_letter)
        elif message_id != name or name not in mailbox.live:  # stored under another name, or before
            self._remove_once_durable(mailbox, name)

    def _is_recent(self, mailbox: Mailbox, name: str) -> bool:
        """Return whether a file changed just now, in the relay's time."""
        try:
            modified_us = self._maildir.modified_us(mailbox.hash, name)
        except FileNotFoundError:
            return True  # it is elsewhere by now
        return abs(self._ledger.now_us() - modified_us) < _UNFINISHED_US

    def _pass_over(self, mailbox: Mailbox, name: str, problem: OSError) -> None:
        """Move a file that is too large to `failed/` as it is; leave links, pipes and the like."""
        log.warning(
            "drop-in %r for %s not read: %s", name, mailbox.subject, problem.strerror or problem
        )
        if problem.errno == errno.EFBIG:
            self._maildir.move(mailbox.hash, name, "new", "failed")

    def _remove_once_durable(self, mailbox: Mailbox, name: str) -> None:
        """Remove the file last: after a crash, the file or the message must exist."""
        remove = partial(self._maildir.discard, mailbox.hash, name)
        durable = self._ledger.journal.barrier()
        if durable is None:  # the same file again: its message is durable
            remove()
        else:
            durable.add_done_callback(lambda done: None if done.exception() else remove())

    def _reject(
        self, mailbox: Mailbox, name: str, content: bytes, reason: str, *, is_dead_letter: bool
    ) -> None:
        """Move the file to `failed/`, without replacing a dead letter's file of that name."""
        log.warning("drop-in %r for %s rejected: %s", name, mailbox.subject, reason)
        failed_at = instant(self._ledger.now_us())
        rejected = RejectedDropIn(content.decode(errors="replace"), reason, failed_at)
        kept = f"{name}.{hashlib.sha256(content).hexdigest()[:12]}" if is_dead_letter else name
        self._maildir.deliver(mailbox.hash, kept, msgspec.json.encode(rejected), "failed")
        self._maildir.discard(mailbox.hash, name)


def _message_id(name: str, content: bytes) -> str:
    """Return the file's name if it is a valid id: publishing it twice is then harmless."""
    try:
        return validate_message_id(name)
    except InvalidMessage:
        return f"drop-{hashlib.sha256(os.fsencode(name) + content).hexdigest()[:32]}"
