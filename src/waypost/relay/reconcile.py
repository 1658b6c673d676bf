"""Mailbox files against the journal: restores what is missing, removes what is over.

Failures and answers:
  file missing, short or empty    written again from the journal
  file in the wrong folder        moved
  file of a message long gone     removed
  file nobody knows               a drop-in: left for `drop_ins` to put through admission
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.bodies import Bodies
from waypost.relay.errors import RelayError
from waypost.relay.history import find_events
from waypost.relay.mailbox import Mailbox, Message, MessageState
from waypost.relay.maildir import Maildir
from waypost.relay.state import RelayState
from waypost.relay.views import dead_letter_file
from waypost.wire.envelopes import encode_envelope

_FOLDER = {MessageState.PENDING: "new", MessageState.LEASED: "cur", MessageState.DEAD: "failed"}


class Repair(msgspec.Struct, frozen=True):
    """One thing that was not as it should be; `done` if it was put right."""

    endpoint: str
    name: str
    text: str
    done: bool = True


def reconcile(
    state: RelayState, maildir: Maildir, bodies: Bodies, journal: Path, *, repair: bool = True
) -> Iterator[Repair]:
    """Bring every mailbox directory in line with the state; yields what was wrong."""
    for mailbox in list(state.mailboxes.values()):
        if repair:
            maildir.ensure(mailbox.hash)
        yield from _mailbox(mailbox, maildir, bodies, journal, repair)


def _mailbox(
    mailbox: Mailbox, maildir: Maildir, bodies: Bodies, journal: Path, repair: bool
) -> Iterator[Repair]:
    found = {folder: maildir.sizes(mailbox.hash, folder) for folder in ("new", "cur", "failed")}
    wanted = [*mailbox.live.values(), *mailbox.dead.values()]
    for message in wanted:
        problem = _misplaced(message, found, bodies)
        if problem:
            if repair:
                _rewrite(message, mailbox.hash, maildir, bodies)
            yield Repair(mailbox.subject, message.id, problem, repair)
    known = {message.id for message in wanted}
    for folder, names in found.items():
        for name in names.keys() - known:
            if next(find_events(journal, name), None) is None:
                continue
            if repair:
                maildir.remove(mailbox.hash, name, folder)
            yield Repair(mailbox.subject, name, f"left over in {folder}/", repair)


def _misplaced(message: Message, found: dict[str, dict[str, int]], bodies: Bodies) -> str:
    folder = _FOLDER[message.state]
    size = found[folder].get(message.id)
    if size is None:
        return f"missing from {folder}/"
    expected = message.size
    if message.state is MessageState.DEAD:
        try:
            expected = len(dead_letter_file(bodies.stored(message), message))
        except (RelayError, OSError):
            return ""
    return "" if size == expected else f"{size} bytes in {folder}/ instead of {expected}"


def _rewrite(message: Message, hash_: str, maildir: Maildir, bodies: Bodies) -> None:
    folder = _FOLDER[message.state]
    if message.state is MessageState.DEAD:
        content = dead_letter_file(bodies.stored(message), message)
    else:
        content = encode_envelope(bodies.stored(message))
    for other in ("new", "cur", "failed"):
        if other != folder:
            maildir.remove(hash_, message.id, other)
    maildir.deliver(hash_, message.id, content, folder)
