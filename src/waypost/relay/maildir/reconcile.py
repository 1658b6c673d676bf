"""Reconciles mailbox files with the state: restores missing ones, removes leftovers.

Failures and answers:
  file missing, short or empty    rewritten from the journal
  file in the wrong folder        moved
  file of a removed message, or   removed; in `new/` it would be taken for a drop-in
  a second one of a message
  unknown file                    a drop-in: left for `drop_ins` to put through admission
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.policy.reasons import DEAD_LETTERED
from waypost.relay.data_dir import endpoint_hash
from waypost.relay.errors import RelayError
from waypost.relay.journal.history import find_events
from waypost.relay.maildir.maildir import DropInFile, Maildir
from waypost.relay.maildir.mirror import dead_letter_file
from waypost.relay.state.mailbox import Mailbox, Message, MessageState
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.relay_state import RelayState
from waypost.wire.envelopes import encode_envelope
from waypost.wire.events import Accepted, MailboxEvent, Rejected

log = logging.getLogger("waypost.relay")

FOLDER = {MessageState.PENDING: "new", MessageState.LEASED: "cur", MessageState.DEAD: "failed"}
"""Messages in another state have no file."""


class Repair(msgspec.Struct, frozen=True):
    """One difference between files and state; `done` if it was repaired."""

    endpoint: str
    name: str
    text: str
    done: bool = True


def reconcile(
    state: RelayState,
    maildir: Maildir,
    payloads: PayloadStore,
    journal: Path,
    *,
    repair: bool = True,
    check_content: bool = False,
) -> Iterator[Repair]:
    """Reconcile every mailbox directory with the state; yield the differences.

    With `check_content`, a file of the right length must also start with the right id.
    """
    for mailbox in list(state.mailboxes.values()):
        try:
            if repair:
                maildir.ensure(mailbox.hash)
            if check_content:
                yield from _swapped_files(mailbox, maildir, payloads)
            yield from _mailbox(mailbox, maildir, payloads, journal, repair)
        except OSError as problem:  # messages are in the journal, with or without files
            log.error("mailbox files of %s cannot be restored: %s", mailbox.subject, problem)
            yield Repair(mailbox.subject, "", f"not usable: {problem}", False)


def _mailbox(
    mailbox: Mailbox, maildir: Maildir, payloads: PayloadStore, journal: Path, repair: bool
) -> Iterator[Repair]:
    found = {folder: maildir.sizes(mailbox.hash, folder) for folder in ("new", "cur", "failed")}
    wanted = list(_with_file(mailbox))
    misplaced: set[str] = set()
    for message in wanted:
        problem = _misplaced(message, found, payloads)
        if problem:
            done = repair and _rewrite(message, mailbox.hash, maildir, payloads)
            misplaced.add(message.id)
            yield Repair(mailbox.subject, message.id, problem, done)
    placed = {(FOLDER[message.state], message.id) for message in wanted}
    for folder, names in found.items():
        for name, size in names.items():
            if (folder, name) in placed or name in misplaced:
                continue
            if not _is_leftover(mailbox, journal, name):
                continue
            if folder == "new" and _is_retried_drop_in(mailbox, maildir, name, size):
                continue
            if repair:
                maildir.remove(mailbox.hash, name, folder)
            yield Repair(mailbox.subject, name, f"left over in {folder}/", repair)


def _swapped_files(mailbox: Mailbox, maildir: Maildir, payloads: PayloadStore) -> Iterator[Repair]:
    """Rewrite files that have the name of one message and the content of another."""
    for message in _with_file(mailbox):
        folder = FOLDER[message.state]
        try:
            right = maildir.has_own_content(mailbox.hash, folder, message.id)
        except FileNotFoundError:
            continue
        if not right:
            done = _rewrite(message, mailbox.hash, maildir, payloads)
            yield Repair(
                mailbox.subject, message.id, f"has another message's content in {folder}/", done
            )


def _with_file(mailbox: Mailbox) -> Iterator[Message]:
    """Yield every message that has a file: scheduled ones do not."""
    for message in (*mailbox.live.values(), *mailbox.dead.values()):
        if message.state in FOLDER:
            yield message


def _is_retried_drop_in(mailbox: Mailbox, maildir: Maildir, name: str, size: int) -> bool:
    """Return whether a file in `new/` with a dead letter's id is a drop-in, not the old file."""
    dead = mailbox.dead.get(name)
    if dead is None or name in mailbox.live or size == dead.size:
        return False
    try:
        msgspec.json.decode(maildir.read(mailbox.hash, "new", name), type=DropInFile)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return False  # the relay's own file, cut short
    return True


def _is_leftover(mailbox: Mailbox, journal: Path, name: str) -> bool:
    """Return whether a misplaced file is the relay's own, not a drop-in or a rejected one.

    It may be that of another mailbox which had this directory before.
    """
    if name in mailbox.live or name in mailbox.dead:
        return True
    return any(
        event.endpoint == mailbox.subject or endpoint_hash(event.endpoint) == mailbox.hash
        for event in find_events(journal, name)
        if isinstance(event, Accepted | MailboxEvent)
        or (isinstance(event, Rejected) and event.reason in DEAD_LETTERED and event.kept)
    )


def _misplaced(message: Message, found: dict[str, dict[str, int]], payloads: PayloadStore) -> str:
    folder = FOLDER[message.state]
    size = found[folder].get(message.id)
    if size is None:
        return f"missing from {folder}/"
    expected = message.size
    if message.state is MessageState.DEAD:
        try:
            expected = len(dead_letter_file(payloads.stored_envelope(message), message))
        except (RelayError, OSError):
            return ""
    return "" if size == expected else f"{size} bytes in {folder}/ instead of {expected}"


def _rewrite(message: Message, hash_: str, maildir: Maildir, payloads: PayloadStore) -> bool:
    """Rewrite a message's file in its folder; return False if the journal is unreadable."""
    folder = FOLDER[message.state]
    try:
        envelope = payloads.stored_envelope(message)
    except (RelayError, OSError) as problem:
        log.error("mailbox file of %s cannot be restored: %s", message.id, problem)
        return False
    if message.state is MessageState.DEAD:
        content = dead_letter_file(envelope, message)
    else:
        content = encode_envelope(envelope)
    for other in ("new", "cur", "failed"):
        if other != folder:
            maildir.remove(hash_, message.id, other)
    maildir.deliver(hash_, message.id, content, folder)
    return True
