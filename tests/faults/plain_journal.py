"""The oracle: a journal read line by line and added up with plain lists and dicts.

It shares no code with the relay, so that both can only agree by being right. It does not know
indexes, checkpoints or repairs: a batch counts if its commit line is complete and its checksum is
right, and everything after the first damaged batch is ignored.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.harness.journal_lines import events_of

Event = dict[str, Any]


@dataclass
class Box:
    """One mailbox: live messages in queue order, and dead letters with their reasons.

    Scheduled messages are live, and are put at the end when they are due.
    """

    live: dict[str, Event] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    scheduled: set[str] = field(default_factory=set)
    dead: dict[str, str] = field(default_factory=dict)
    arrivals: list[Event] = field(default_factory=list)
    replaced: int = 0

    def arrive(self, event: Event) -> None:
        """Add a message; it replaces its sender's dead letter with the same id."""
        if event["id"] in self.dead:
            assert self.arrival(event["id"])["sender"] == event["sender"], f"took a place: {event}"
            del self.dead[event["id"]]
            self.replaced += 1
        self.arrivals.append(event)

    def arrival(self, message_id: str) -> Event:
        """Return the arrival of the message with this id."""
        return next(one for one in reversed(self.arrivals) if one["id"] == message_id)

    def status(self) -> dict[str, str]:
        """Return the folder of every message, by id."""
        live = {one: "cur" if one in self.leased else "new" for one in self.live}
        later = dict.fromkeys(self.scheduled, "later")
        return {**live, **later, **dict.fromkeys(self.dead, "failed")}

    def usage(self) -> dict[str, tuple[int, int]]:
        """Return the messages and bytes of every sender."""
        held: dict[str, tuple[int, int]] = {}
        for event in self.live.values():
            count, size = held.get(event["sender"], (0, 0))
            held[event["sender"]] = (count + 1, size + event.get("size", 0))
        return held


@dataclass
class Sum:
    """The sum of a list of events."""

    boxes: dict[str, Box] = field(default_factory=dict)
    endpoints: dict[str, int] = field(default_factory=dict)
    last_seen: dict[tuple[str, str], int] = field(default_factory=dict)
    sent_ms: dict[str, list[int]] = field(default_factory=dict)
    first_results: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    """When and where a chosen id was stored, by sender and id."""
    acked: set[tuple[str, str]] = field(default_factory=set)
    accepted: set[tuple[str, str]] = field(default_factory=set)
    seq: int = 0
    at_us: int = 0

    def box(self, endpoint: str) -> Box:
        return self.boxes.setdefault(endpoint, Box())

    def status(self) -> dict[str, dict[str, str]]:
        """Return the folder of every message, by endpoint and id."""
        return {name: box.status() for name, box in self.boxes.items() if box.status()}

    def order(self) -> dict[str, list[str]]:
        """Return the ids of live messages in queue order, by endpoint."""
        return {name: list(box.live) for name, box in self.boxes.items() if box.live}

    def dead(self) -> dict[str, dict[str, str]]:
        """Return the reason of every dead letter, by endpoint and id."""
        return {name: dict(box.dead) for name, box in self.boxes.items() if box.dead}


def segments(data: Path) -> list[Path]:
    """Return the journal's files in order."""
    found = (data / "journal").glob("*")
    return sorted(path for path in found if path.suffix in (".jsonl", ".open"))


def batches(content: bytes) -> Iterator[tuple[int, int, list[Event]]]:
    """Yield start, end and events of each batch, up to the first damaged one."""
    start = offset = 0
    lines: list[bytes] = []
    for text in content.split(b"\n"):
        line = content[offset : offset + len(text) + 1]
        offset += len(line)
        if not line.startswith(b'{"kind":"commit"'):
            lines.append(line)
            continue
        if not line.endswith(b"\n"):
            return
        commit, body = json.loads(line), b"".join(lines)
        if (commit["bytes"], commit["crc"]) != (len(body), zlib.crc32(body)):
            return
        found = [event for one in lines for event in events_of(one)]
        assert commit["count"] == len(found)
        yield start, offset, found
        start, lines = offset, []


def _content(path: Path) -> bytes:
    """Read a segment, even if the relay's thread seals it at that moment."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return path.with_suffix(".jsonl").read_bytes()


def committed(data: Path) -> list[Event]:
    """Return every committed event, in order."""
    return [
        event
        for path in segments(data)
        for _, _, found in batches(_content(path))
        for event in found
    ]


def assert_chained(data: Path) -> None:
    """Assert that every batch names the hash of the one before it, up to the first damage."""
    before = "0" * 64
    for path in segments(data):
        content, end = _content(path), 0
        for start, end, _ in batches(content):
            commit = json.loads(content[start:end].splitlines()[-1])
            assert commit["prev"] == before, f"{path.name} at byte {start}"
            before = sha256(content[start:end]).hexdigest()
        if end != len(content):
            return


def add_up(events: Iterable[Event]) -> Sum:
    """Add up events, oldest first."""
    total = Sum()
    for event in events:
        add_event(total, event)
    return total


def add_event(total: Sum, event: Event) -> None:
    """Add one more event."""
    total.seq, total.at_us = event["seq"], event["at_us"]
    _ADD[event["kind"]](total, event)


def add_up_directory(data: Path) -> Sum:
    """Add up the journal of a data directory."""
    return add_up(committed(data))


def _arrived(total: Sum, event: Event) -> None:
    uncounted = ("rate_limited", "access_denied", "storage_full", "mailbox_unavailable")
    if event.get("reason") in uncounted:
        return
    at_ms, endpoint = event["at_us"] // 1000, event.get("endpoint", "")
    if event.get("part", 0) == 0:
        total.sent_ms.setdefault(event["sender"], []).append(at_ms)
        if event.get("network"):
            key = f"{event['sender']} {event['network']}"
            total.sent_ms.setdefault(key, []).append(at_ms)
    if endpoint:
        total.last_seen[event["sender"], endpoint] = at_ms
    if event.get("chosen_id"):
        key = f"{event['sender']} {event['id']}"
        stored = total.first_results.get(key, (0, []))[1] if event.get("part") else []
        kept = [*stored, endpoint] if event["kind"] == "accepted" and endpoint else stored
        total.first_results[key] = (event["at_us"], kept)


def _accepted(total: Sum, event: Event) -> None:
    _arrived(total, event)
    endpoint = event.get("endpoint", "")
    if endpoint:
        total.accepted.add((endpoint, event["id"]))
        box = total.box(endpoint)
        assert event["id"] not in box.live, f"stored twice: {event}"
        box.arrive(event)
        box.live[event["id"]] = event
        if event.get("due_us"):
            assert event["due_us"] > event["at_us"]
            box.scheduled.add(event["id"])


def _rejected(total: Sum, event: Event) -> None:
    _arrived(total, event)
    if event["reason"] == "budget_exceeded" and event.get("kept", True):
        box = total.box(event["endpoint"])
        box.arrive(event)
        box.dead[event["id"]] = event["detail"]


def _leased(total: Sum, event: Event) -> None:
    box = total.box(event["endpoint"])
    assert event["id"] in box.live, f"handed out, but not there: {event}"
    assert event["id"] not in box.leased, f"handed out twice: {event}"
    assert event["id"] not in box.scheduled, f"handed out too early: {event}"
    box.leased.add(event["id"])


def _returned(total: Sum, event: Event) -> None:
    total.box(event["endpoint"]).leased.discard(event["id"])  # a probe is returned pending


def _left(total: Sum, event: Event) -> None:
    box = total.box(event["endpoint"])
    if event.get("was") == "dead":
        del box.dead[event["id"]]
        return
    del box.live[event["id"]]
    box.leased.discard(event["id"])
    assert event["kind"] in ("cancelled", "evicted") or event["id"] not in box.scheduled
    box.scheduled.discard(event["id"])
    if event["kind"] == "acked":
        total.acked.add((event["endpoint"], event["id"]))
    elif event["kind"] in ("failed", "evicted"):
        box.dead[event["id"]] = event["reason"]


def _redriven(total: Sum, event: Event) -> None:
    box = total.box(event["endpoint"])
    del box.dead[event["id"]]
    box.live[event["id"]] = arrival = box.arrival(event["id"])
    if arrival.get("due_us", 0) // 1000 > event["at_us"] // 1000:
        box.scheduled.add(event["id"])


def _queued(total: Sum, event: Event) -> None:
    box = total.box(event["endpoint"])
    arrival = box.live[event["id"]] = box.live.pop(event["id"])
    assert arrival["due_us"] <= event["at_us"], f"queued too early: {event}"
    box.scheduled.remove(event["id"])


def _endpoint(total: Sum, event: Event) -> None:
    if event["action"] == "registered":
        total.endpoints[event["endpoint"]] = event.get("since_us") or event["at_us"]
    else:
        del total.endpoints[event["endpoint"]]


def _nothing(total: Sum, event: Event) -> None:
    """Ignore an event that does not concern mailboxes."""


_ADD = {
    "accepted": _accepted,
    "rejected": _rejected,
    "leased": _leased,
    "returned": _returned,
    **dict.fromkeys(("acked", "failed", "expired", "evicted", "cancelled"), _left),
    "redriven": _redriven,
    "queued": _queued,
    "endpoint": _endpoint,
    **dict.fromkeys(("breaker", "session", "rules", "settings", "checkpoint"), _nothing),
}


def files(data: Path) -> dict[str, dict[str, str]]:
    """Return the folder of every mailbox file, by mailbox hash and name; `tmp/` is left out."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((data / "mailboxes").glob("*/*/*")):
        folder, mailbox = path.parent.name, path.parent.parent.name
        if folder == "tmp":
            continue
        names = found.setdefault(mailbox, {})
        assert path.name not in names, f"{path.name} is in {folder}/ and in {names[path.name]}/"
        names[path.name] = folder
    return found


def hash_of(subject: str) -> str:
    """Return the directory name of a mailbox."""
    return sha256(subject.encode()).hexdigest()[:12]


def assert_files_are(data: Path, total: Sum) -> None:
    """Assert that mailbox files are exactly the messages that are due, each in its folder."""
    wanted = {}
    for name, folders in total.status().items():
        with_file = {one: folder for one, folder in folders.items() if folder != "later"}
        if with_file:
            wanted[hash_of(name)] = with_file
    assert files(data) == wanted


def assert_index_is_right(data: Path, events: list[Event] | None = None) -> None:
    """Assert that the index of a closed relay equals the journal's sum at its position.

    What lies in mailboxes is complete; the position itself may stop short of trailing events
    that changed none. `events` is the whole history, where the journal has forgotten some.
    """
    events = committed(data) if events is None else events
    connection = sqlite3.connect(f"file:{data / 'index.db'}?mode=ro", uri=True)
    try:
        rows = connection.execute
        seq, at_us = rows("select seq, at_us from position").fetchone()
        total = add_up(event for event in events if event["seq"] <= seq)
        assert (total.seq, total.at_us) == (seq, at_us)
        found: dict[str, dict[str, str]] = {}
        order = "select endpoint, id, status from messages order by ordering"
        for endpoint, name, status in rows(order):
            found.setdefault(endpoint, {})[name] = status
        assert found == total.status() == add_up(events).status()
        live = {
            endpoint: [name for name, status in names.items() if status != "failed"]
            for endpoint, names in found.items()
        }
        assert {name: ids for name, ids in live.items() if ids} == total.order()
        assert dict(rows("select subject, since_us from endpoints")) == total.endpoints
        seen = {(a, b): at for a, b, at in rows("select sender, recipient, at_ms from last_seen")}
        assert seen == total.last_seen
    finally:
        connection.close()
