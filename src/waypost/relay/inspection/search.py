"""Search for messages: stored ones in memory, the others in the newest part of the journal.

Rule 1  Pending, leased and dead messages are found at any age: they are in memory.
Rule 2  The others are searched in the newest `WINDOW_BYTES` of the journal, from its end
        backwards, in a thread. Only lines that contain a search term are decoded. The result
        reports how far back the search went.
Rule 3  A stored message has its current state; the outcome of any other is read from the journal.
Rule 4  The messages of a thread are found by the journal's index instead, at any age (`threads`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from waypost.policy.subjects import is_subject, matches_pattern
from waypost.relay.inspection.paging import Cursor, cursor_text
from waypost.relay.journal.segments import list_segments
from waypost.relay.state.mailbox import Mailbox, Message, MessageState
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Accepted, Rejected, decode_event
from waypost.wire.journal_batches import COMMIT_MARK

WINDOW_BYTES = 32 * 1024 * 1024
LINES_MAX = 200_000
"""The limit of journal lines read in one search."""
MESSAGES_MAX = 200_000
"""The limit of messages in memory read in one search."""

SoughtOutcome = Literal[
    "scheduled",
    "pending",
    "leased",
    "dead",
    "rejected",
    "acked",
    "expired",
    "cancelled",
    "purged",
]
Outcome = SoughtOutcome | Literal["gone"]
"""`gone`: the outcome is no longer known."""

_IN_MEMORY: dict[MessageState, Outcome] = {
    MessageState.PENDING: "pending",
    MessageState.SCHEDULED: "scheduled",
    MessageState.LEASED: "leased",
    MessageState.DEAD: "dead",
}
_ARRIVALS = (b'{"kind":"accepted"', b'{"kind":"rejected"')


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Search criteria. `sender` and `endpoint` are patterns; None matches all.

    Events after `seq` are left out: the search in memory did not see them. `after` is the cursor
    of the page before.
    """

    id: str | None = None
    thread: str | None = None
    sender: str | None = None
    endpoint: str | None = None
    outcome: str | None = None
    since_us: int = 0
    until_us: int = 1 << 62
    limit: int = 100
    seq: int = 1 << 62
    after: Cursor = (1 << 62, 0)


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message at one endpoint. `reason` explains why it is dead or was rejected.

    `count` rejections may be recorded as one. The outcome `gone` is outside the searched part.
    `seq` is the number of the event that put it into its queue, or rejected it.
    """

    id: str
    at_us: int
    sender: str
    endpoint: str
    bytes: int
    outcome: Outcome
    reason: str = ""
    count: int = 1
    seq: int = 0

    @property
    def cursor(self) -> Cursor:
        """Return its position in a list."""
        return self.at_us, self.seq


class SearchResult(msgspec.Struct, kw_only=True):
    """`messages`, the newest first. The journal was searched back to `since_us`.

    `more`: there may be further matches, older or beyond the limit. The next page is `after` the
    cursor `next`, empty if there is none.
    """

    messages: list[FoundMessage]
    since_us: int
    more: bool
    next: str = ""


def page_of(messages: list[FoundMessage], query: SearchQuery, found: SearchResult) -> SearchResult:
    """Return the newest of `messages` as a page; `found` is what the journal had of them."""
    newest = sorted(messages, key=lambda one: one.cursor, reverse=True)[: query.limit]
    more = found.more or len(messages) > query.limit
    following = cursor_text(newest[-1].cursor) if more and newest else ""
    return SearchResult(messages=newest, since_us=found.since_us, more=more, next=following)


def find_in_memory(state: RelayState, query: SearchQuery) -> list[FoundMessage]:
    """Return stored messages, the newest of each mailbox first, at most `limit` of each."""
    found: list[FoundMessage] = []
    left = MESSAGES_MAX
    for mailbox in list(state.mailboxes.values()):
        if query.endpoint is not None and not matches_pattern(mailbox.subject, query.endpoint):
            continue
        enough = len(found) + query.limit
        for message in _newest(mailbox):
            left -= 1
            if left < 0 or len(found) >= enough:
                break
            one = _in_memory(message)
            if matches(one, query):
                found.append(one)
    return found


def find_in_journal(
    directory: Path, query: SearchQuery, known: set[tuple[str, str]]
) -> SearchResult:
    """Return arrivals from the newest part of the journal, except those in `known`."""
    chunks = list(_newest_chunks(directory))
    found = SearchResult(messages=[], since_us=_begin_us(chunks), more=False)
    left = LINES_MAX
    for at, data in enumerate(chunks):
        for start, stop in _lines_with(_needle(query), data):
            left -= 1
            if left < 0 or len(found.messages) >= query.limit:
                found.more = True
                return found
            event = _arrival(data, start, stop)
            if event is None or event.seq > query.seq or (event.id, event.endpoint) in known:
                continue
            if (event.at_us, event.seq) >= query.after:
                continue
            if event.at_us < query.since_us:
                return found
            one = _from_journal(event, chunks[at::-1], stop)
            if matches(one, query):
                found.messages.append(one)
    return found


def _newest(mailbox: Mailbox) -> Iterator[Message]:
    yield from reversed(mailbox.live.values())
    yield from reversed(mailbox.dead.values())


def _in_memory(message: Message) -> FoundMessage:
    return FoundMessage(
        id=message.id,
        at_us=message.at_us,
        sender=message.sender,
        endpoint=message.endpoint,
        bytes=message.size,
        outcome=_IN_MEMORY.get(message.state, "gone"),
        reason=message.reason,
        seq=message.order,
    )


def matches(one: FoundMessage, query: SearchQuery) -> bool:
    """Return whether a message meets the criteria, apart from its thread."""
    return (
        (query.id is None or one.id == query.id)
        and (query.outcome is None or one.outcome == query.outcome)
        and query.since_us <= one.at_us <= query.until_us
        and one.cursor < query.after
        and (query.sender is None or matches_pattern(one.sender, query.sender))
        and (query.endpoint is None or matches_pattern(one.endpoint, query.endpoint))
    )


def _newest_chunks(directory: Path) -> Iterator[bytes]:
    """Yield whole lines of the newest `WINDOW_BYTES`, up to the last commit, newest first."""
    left = WINDOW_BYTES
    for path in reversed(list_segments(directory).values()):
        try:
            with path.open("rb") as file:
                begin = max(0, path.stat().st_size - left)
                file.seek(begin)
                data = file.read()
        except FileNotFoundError:
            continue  # sealed or dropped since the list was made
        first = data.find(b"\n") + 1 if begin else 0
        yield data[first : data.rfind(COMMIT_MARK) + 1]
        left -= len(data)
        if left <= 0:
            return


def _needle(query: SearchQuery) -> bytes:
    """Return bytes that every matching line contains, as rare as possible."""
    if query.id is not None:
        return f'"id":"{query.id}"'.encode()
    for name in (query.sender, query.endpoint):
        if name is not None and is_subject(name):
            return f'"{name}"'.encode()
    begin = (query.sender or "").partition("*")[0].partition(">")[0]
    return f'"sender":"{begin}'.encode()


def _lines_with(needle: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the lines that contain `needle`, the last first."""
    end = len(data)
    while (at := data.rfind(needle, 0, end)) >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        yield start, data.find(b"\n", at)
        end = start


def _arrival(data: bytes, start: int, stop: int) -> Accepted | Rejected | None:
    if not data.startswith(_ARRIVALS, start):
        return None
    try:
        event = decode_event(data[start:stop])
    except msgspec.DecodeError:
        return None  # damaged: `problems` reports it
    return event if isinstance(event, Accepted | Rejected) else None


def _from_journal(event: Accepted | Rejected, later: list[bytes], after: int) -> FoundMessage:
    outcome: Outcome = "rejected"
    reason, count = "", 1
    if isinstance(event, Rejected):
        named = event.detail.startswith(event.reason)
        reason = event.detail if named else f"{event.reason}: {event.detail}"
        count = event.count
    else:
        outcome = _outcome_of(event, later, after)
    return FoundMessage(
        id=event.id,
        at_us=event.at_us,
        sender=event.sender,
        endpoint=event.endpoint or event.subject,
        bytes=event.size,
        outcome=outcome,
        reason=reason,
        count=count,
        seq=event.seq,
    )


def _outcome_of(event: Accepted, later: list[bytes], after: int) -> Outcome:
    """Return the outcome of a stored message from the first event that ends it."""
    if not event.endpoint:
        return "gone"  # it had no recipient
    needles = f'"{event.id}"'.encode(), f'"endpoint":"{event.endpoint}"'.encode()
    for data in later:
        at = after
        while (at := data.find(needles[0], at)) >= 0:
            start, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if data.find(needles[1], start, stop) >= 0:
                if data.startswith(b'{"kind":"acked"', start):
                    return "acked"
                if data.startswith(b'{"kind":"expired"', start):
                    return "purged" if data.find(b'"was":"dead"', start, stop) >= 0 else "expired"
                if data.startswith(b'{"kind":"cancelled"', start):
                    return "cancelled"
            at = stop
        after = 0
    return "gone"


def _begin_us(chunks: list[bytes]) -> int:
    """Return the time of the oldest line read; 0 if there is none."""
    for data in reversed(chunks):
        for line in data[: 1 << 20].splitlines():
            try:
                return decode_event(line).at_us
            except msgspec.DecodeError:
                continue
    return 0
