"""Mailbox files against the journal: restores what is missing, removes what is over.

Failures and answers:
  file missing, short or empty    written again from the journal
  file in the wrong folder        moved
  file of a message long gone,    removed; one left in `new/` would be taken for a drop-in
  or the second of two
  file nobody knows               a drop-in: left for `drop_ins` to put through admission
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.policy.reasons import DEAD_LETTERED
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


class Repair(msgspec.Struct, frozen=True):
    """One thing that was not as it should be; `done` if it was put right."""

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
    """Bring every mailbox directory in line with the state; yields what was wrong.

    With `check_content`, a file of the right length must also begin with the right id.
    """
    for mailbox in list(state.mailboxes.values()):
        try:
            if repair:
                maildir.ensure(mailbox.hash)
            if check_content:
                yield from _strangers(mailbox, maildir, payloads)
            yield from _mailbox(mailbox, maildir, payloads, journal, repair)
        except OSError as problem:  # mail is in the journal, with or without its files
            log.error("mailbox of %s cannot be restored: %s", mailbox.subject, problem)
            yield Repair(mailbox.subject, "", f"not usable: {problem}", False)


def _mailbox(
    mailbox: Mailbox, maildir: Maildir, payloads: PayloadStore, journal: Path, repair: bool
) -> Iterator[Repair]:
    found = {folder: maildir.sizes(mailbox.hash, folder) for folder in ("new", "cur", "failed")}
    wanted = [*mailbox.live.values(), *mailbox.dead.values()]
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
            if not _is_left_over(mailbox, journal, name):
                continue
            if folder == "new" and _is_tried_again(mailbox, maildir, name, size):
                continue
            if repair:
                maildir.remove(mailbox.hash, name, folder)
            yield Repair(mailbox.subject, name, f"left over in {folder}/", repair)


def _strangers(mailbox: Mailbox, maildir: Maildir, payloads: PayloadStore) -> Iterator[Repair]:
    """Files under the name of one message with the content of another are written again."""
    for message in (*mailbox.live.values(), *mailbox.dead.values()):
        folder = FOLDER[message.state]
        try:
            right = maildir.holds(mailbox.hash, folder, message.id)
        except FileNotFoundError:
            continue
        if not right:
            done = _rewrite(message, mailbox.hash, maildir, payloads)
            yield Repair(mailbox.subject, message.id, f"another message's in {folder}/", done)


def _is_tried_again(mailbox: Mailbox, maildir: Maildir, name: str, size: int) -> bool:
    """Whether a file in `new/` with the id of a dead letter is a drop-in, and not the old file."""
    dead = mailbox.dead.get(name)
    if dead is None or name in mailbox.live or size == dead.size:
        return False
    try:
        msgspec.json.decode(maildir.read(mailbox.hash, "new", name), type=DropInFile)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return False  # ours, cut short or from elsewhere
    return True


def _is_left_over(mailbox: Mailbox, journal: Path, name: str) -> bool:
    """Whether a file in the wrong place is one of ours, and not a drop-in or a refused one."""
    if name in mailbox.live or name in mailbox.dead:
        return True
    return any(
        event.endpoint == mailbox.subject
        for event in find_events(journal, name)
        if isinstance(event, Accepted | MailboxEvent)
        or (isinstance(event, Rejected) and event.reason in DEAD_LETTERED)
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
    """Write the file anew where it belongs; False if the journal cannot give its content."""
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
