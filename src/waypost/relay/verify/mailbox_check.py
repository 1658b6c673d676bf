"""Checks stored messages: each must be readable, and its file must match the journal.

A payload that is damaged in the journal can be restored from the message's own file, if that has
the length and the checksum recorded in the journal.
"""

import zlib
from collections import Counter
from collections.abc import Container, Iterator

import msgspec

from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayError
from waypost.relay.journal.segments import Damage, Location, bodies_path
from waypost.relay.maildir.maildir import Maildir
from waypost.relay.maildir.mirror import dead_letter_file
from waypost.relay.maildir.reconcile import FOLDER, reconcile
from waypost.relay.state.index import all_messages
from waypost.relay.state.mailbox import Message, MessageState
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.relay_state import RelayState
from waypost.relay.verify.findings import Finding, Outcome, Part
from waypost.relay.verify.journal_check import BodyFiles, BrokenBody
from waypost.wire.envelopes import encode_envelope
from waypost.wire.events import BodyRef

Key = tuple[str, str]


class _EnvelopeFile(msgspec.Struct):
    payload: msgspec.Raw


class _DeadLetterFile(msgspec.Struct):
    envelope: _EnvelopeFile


class MailboxCheck:
    """Checks the messages of `state` against its data directory."""

    def __init__(self, data: DataDir, state: RelayState, *, repair: bool) -> None:
        self._data = data
        self._state = state
        self._repair = repair
        self._maildir = Maildir(data.mailboxes)
        self._doubtful: set[Key] = set()
        """Messages that the journal cannot confirm: their files are not changed."""

    def payloads(self, broken: list[BrokenBody]) -> Iterator[Finding]:
        """Yield damaged large payloads; restore those still needed where possible."""
        needed: dict[tuple[int, BodyRef], list[Message]] = {}
        unneeded: Counter[int] = Counter()
        kept = (
            {message.location: message for message in all_messages(self._state)} if broken else {}
        )
        for one in broken:
            message = kept.get(one.location)
            if message is not None:
                needed.setdefault((one.location.segment, one.body), []).append(message)
            else:
                unneeded[one.location.segment] += 1
        for (segment, body), messages in needed.items():
            yield self._payload(segment, body, messages)
        for segment, count in unneeded.items():
            some = "a damaged payload" if count == 1 else f"{count:,} damaged payloads"
            text = f"{some} of removed messages: no longer needed"
            yield Finding(Part.JOURNAL, self._bodies_name(segment), text, Outcome.NOTED)

    def lines(self, damaged: list[Damage], correctable: Container[Damage]) -> Iterator[Finding]:
        """Yield messages whose line in the journal is damaged or missing."""
        payloads = PayloadStore(self._data.journal)
        for message in all_messages(self._state):
            damage = next((one for one in damaged if _holds(one, message.location)), None)
            problem = "is in a damaged part of the journal: its content may be wrong"
            if damage is None:
                problem = _unreadable(message, payloads)
            if problem:
                self._doubtful.add((message.endpoint, message.id))
            if problem and (damage is None or damage not in correctable):
                text = f"{message.id} {problem}"
                yield Finding(Part.JOURNAL, message.endpoint, text, Outcome.LOST)
        payloads.close()

    def files(self) -> Iterator[Finding]:
        """Yield mailbox files that are missing, misplaced, left over or altered."""
        payloads = PayloadStore(self._data.journal)
        directory = self._data.journal
        for one in reconcile(self._state, self._maildir, payloads, directory, repair=self._repair):
            outcome = Outcome.REPAIRED if one.done else Outcome.FOUND
            if not one.done and ((one.endpoint, one.name) in self._doubtful or self._repair):
                outcome = Outcome.LOST
            yield Finding(Part.MAILBOXES, one.endpoint, f"{one.name} {one.text}", outcome)
        for message in all_messages(self._state):
            if message.state in FOLDER and (message.endpoint, message.id) not in self._doubtful:
                yield from self._content(message, payloads)
        payloads.close()

    def _content(self, message: Message, payloads: PayloadStore) -> Iterator[Finding]:
        hash_, folder = self._state.mailboxes[message.endpoint].hash, FOLDER[message.state]
        try:
            envelope = payloads.stored_envelope(message)
            found = self._maildir.read(hash_, folder, message.id)
        except (RelayError, OSError):
            return  # reported as unreadable or missing
        dead = message.state is MessageState.DEAD
        wanted = dead_letter_file(envelope, message) if dead else encode_envelope(envelope)
        if found == wanted or len(found) != len(wanted):
            return
        if self._repair:
            self._maildir.deliver(hash_, message.id, wanted, folder)
        outcome = Outcome.REPAIRED if self._repair else Outcome.FOUND
        text = f"{message.id} in {folder}/ differs from the stored message"
        yield Finding(Part.MAILBOXES, message.endpoint, text, outcome)

    def _payload(self, segment: int, body: BodyRef, messages: list[Message]) -> Finding:
        copies = (self._payload_in_file(message) for message in messages)
        intact = next(
            (c for c in copies if len(c) == body.length and zlib.crc32(c) == body.crc), b""
        )
        names = ", ".join(f"{message.id} of {message.endpoint}" for message in messages)
        where = self._bodies_name(segment)
        text = f"the payload of {names} is damaged"
        if not intact:
            self._doubtful.update((message.endpoint, message.id) for message in messages)
            text += " and not in a mailbox file: purge or acknowledge the message"
            return Finding(Part.JOURNAL, where, text, Outcome.LOST)
        if self._repair and BodyFiles(self._data.journal).restore(segment, body, intact):
            text += "; restored from its mailbox file"
            return Finding(Part.JOURNAL, where, text, Outcome.REPAIRED)
        return Finding(Part.JOURNAL, where, f"{text}; its mailbox file is intact", Outcome.FOUND)

    def _payload_in_file(self, message: Message) -> bytes:
        """Return the payload in the message's mailbox file, or b"" if there is none."""
        hash_ = self._state.mailboxes[message.endpoint].hash
        for folder in ("new", "cur", "failed"):
            try:
                content = self._maildir.read(hash_, folder, message.id)
                if folder == "failed":
                    dead_letter = msgspec.json.decode(content, type=_DeadLetterFile)
                    return bytes(dead_letter.envelope.payload)
                return bytes(msgspec.json.decode(content, type=_EnvelopeFile).payload)
            except (OSError, msgspec.DecodeError):
                continue
        return b""

    def _bodies_name(self, segment: int) -> str:
        return bodies_path(self._data.journal, segment).name


def _holds(damage: Damage, location: Location) -> bool:
    return damage.segment == location.segment and damage.start <= location.offset < damage.end


def _unreadable(message: Message, payloads: PayloadStore) -> str:
    """Return why the arrival of a message cannot be read, or ""."""
    try:
        arrival = payloads.read_arrival(message.location)
    except (RelayError, OSError) as problem:
        return f"is unreadable: {problem}"
    same = (arrival.endpoint, arrival.id) == (message.endpoint, message.id)
    return "" if same else "is not at the location in the index"
