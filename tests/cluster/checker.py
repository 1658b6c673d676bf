"""Judges a simulated cluster by what its callers were promised, after every step.

The fold of the log is the model: what a caller was told must be in it, once and in order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.cluster.nodes import Node, segments_of
from tests.cluster.simulated_log import SimulatedLog
from waypost.relay.journal.log import NO_HASH, Record, hash_of
from waypost.relay.journal.segments import Location, decode_line
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Accepted, Acked, AnyEvent, Leased, OwnerChanged, split

COMMIT = b'{"kind":"commit"'


class Publish:
    """One message: the steps at which it was first tried and at which its result returned."""

    def __init__(self, message_id: str, endpoint: str, started: int) -> None:
        self.id = message_id
        self.endpoint = endpoint
        self.started = started
        self.returned: int | None = None


class Fold:
    """The state and the facts of a log, up to the records folded so far."""

    def __init__(self) -> None:
        self.state = RelayState()
        self.records: list[Record] = []
        self.accepted: Counter[str] = Counter()
        self.order: dict[str, list[str]] = {}
        self.leased: set[str] = set()
        self.acked: set[str] = set()
        self.owner = ""

    def add(self, record: Record) -> None:
        """Fold one record; its chain, numbers and epoch must continue those before."""
        prev = self.records[-1].header.hash if self.records else NO_HASH
        assert record.header.prev == prev, "a record does not continue the one before"
        assert not record.lines or record.header.hash == hash_of(record.lines)
        for event in events_of(record):
            assert event.seq == self.state.seq + 1, "an event number is missing or doubled"
            self._note(event)
            self.state.apply(event, Location(record.header.segment, 0, 0))
        assert record.header.epoch == self.state.epoch, "a record has another epoch than its owner"
        self.records.append(record)

    def _note(self, event: AnyEvent) -> None:
        match event:
            case Accepted() if event.endpoint:
                self.accepted[event.id] += 1
                self.order.setdefault(event.endpoint, []).append(event.id)
            case Leased():
                self.leased.add(event.id)
            case Acked():
                self.acked.add(event.id)
            case OwnerChanged():
                assert event.epoch > self.state.epoch, f"epoch {event.epoch} has two owners"
                self.owner = event.node


class Checker:
    """Keeps what callers were told, and compares it with the log and with every owner."""

    def __init__(self, log: SimulatedLog, nodes: list[Node]) -> None:
        self._log = log
        self._nodes = nodes
        self._fold = Fold()
        self._forgotten = 0
        self.publishes: dict[str, Publish] = {}
        self.leases: list[str] = []
        self.acked: set[str] = set()

    @property
    def owner(self) -> str:
        return self._fold.owner

    def note_lease(self, ids: Iterable[str]) -> None:
        """Record a lease that was returned to its caller."""
        again = [one for one in ids if one in self.acked]
        assert self._log.forgotten or not again, f"{again} were acknowledged, and come again"
        self.leases += ids

    def check(self) -> None:
        """Compare everything now."""
        fold = self._folded()
        doubled = [one for one, count in fold.accepted.items() if count > 1]
        assert not doubled, f"{doubled} are stored twice"
        returned = [one for one in self.publishes.values() if one.returned is not None]
        missing = [one.id for one in returned if one.id not in fold.accepted]
        if self._log.forgotten:
            missing = [one for one in missing if not self._is_kept(one)]
        else:
            check_order(fold, self.publishes)
            delivered = [one for one in self.leases if one not in fold.leased]
            assert not delivered, f"{delivered} were delivered, but the log has no lease of them"
            forgotten = self.acked - fold.acked
            assert not forgotten, f"{forgotten} were acknowledged, but the log does not have it"
        assert not missing, f"{missing} were returned as stored, and are lost"
        for node in self._nodes:
            check_state(node, fold)

    def check_copies(self) -> None:
        """Compare every node's segments with the log, byte by byte."""
        expected: dict[str, bytes] = {}
        for record in self._log.records:
            name = f"{record.header.segment:020d}"
            if record.lines:
                assert len(expected.get(name, b"")) == record.header.offset
                expected[name] = expected.get(name, b"") + record.lines
        for node in self._nodes:
            assert segments_of(node.journal) == expected, f"{node.name} has other segments"

    def lost(self) -> list[str]:
        """Return what was returned and is not in the log."""
        returned = [one for one in self.publishes.values() if one.returned is not None]
        return [one.id for one in returned if one.id not in self._folded().accepted]

    def _folded(self) -> Fold:
        records = self._log.records
        known = self._fold.records
        if self._forgotten != self._log.forgotten:
            self._fold, self._forgotten, known = Fold(), self._log.forgotten, []
        for record in records[len(known) :]:
            self._fold.add(record)
        return self._fold

    def _is_kept(self, message_id: str) -> bool:
        """Return whether some node still has a message that the log lost."""
        needle = f'"id":"{message_id}"'.encode()
        for node in self._nodes:
            for path in node.journal.rglob("*"):
                if path.is_file() and needle in path.read_bytes():
                    return True
        return False


def check_order(fold: Fold, publishes: dict[str, Publish]) -> None:
    """What was returned before another publish began comes before it in its mailbox."""
    for ids in fold.order.values():
        latest = -1
        for one in (publishes[each] for each in ids):
            is_late = one.returned is not None and one.returned < latest
            assert not is_late, f"{one.id} was returned before a publish that overtook it"
            latest = max(latest, one.started)


def check_state(node: Node, fold: Fold) -> None:
    """The state of an owner without open decisions is the fold of the log."""
    relay = node.relay
    if relay is None or fold.owner != node.name or node.connection.is_paused:
        return
    journal = relay._runtime.journal
    if journal.failure is not None or journal.busy:
        return
    state = relay._runtime.ledger.state
    if state.seq == fold.state.seq:  # otherwise it is fenced and has not noticed yet
        assert facts(state) == facts(fold.state), f"{node.name} has another state than the log"


def events_of(record: Record) -> Iterator[AnyEvent]:
    for line in record.lines.splitlines():
        if not line.startswith(COMMIT):
            yield from split(decode_line(line))


def facts(state: RelayState) -> dict[str, Any]:
    """Return what two states must have in common."""
    mailboxes = {
        mailbox.subject: (
            mailbox.registered,
            {(one.id, one.order, one.state, one.attempt) for one in mailbox.live.values()},
            {(one.id, one.order) for one in mailbox.dead.values()},
        )
        for mailbox in state.mailboxes.values()
    }
    return {
        "seq": state.seq,
        "mailboxes": mailboxes,
        "outboxes": {one: set(box.live) for one, box in state.outboxes.items() if box.live},
        "leased": {(one.endpoint, one.id) for one in state.leased()},
    }
