"""Finding messages: in memory those that are there, in the newest journal those that were.

Rule 1  What waits, is leased or is dead is found however old it is: it is in memory.
Rule 2  Of the rest, the newest `WINDOW_BYTES` of the journal are read, from the end backwards,
        in a thread. Lines are decoded only if they hold what is asked for. The answer says how
        far back it goes.
Rule 3  What is still there is told as it is now; of what is gone, the journal tells how it went.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from waypost.policy.subjects import is_subject, matches_pattern
from waypost.relay.journal.segments import list_segments
from waypost.relay.state.mailbox import Mailbox, Message, MessageState
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Accepted, Rejected, decode_event
from waypost.wire.journal_batches import COMMIT_MARK

WINDOW_BYTES = 32 * 1024 * 1024
LINES_MAX = 200_000
"""Lines looked at in one search."""
MESSAGES_MAX = 200_000
"""Messages in memory looked at in one search."""

Outcome = Literal["pending", "leased", "dead", "rejected", "acked", "expired", "purged", "gone"]

_IN_MEMORY: dict[MessageState, Outcome] = {
    MessageState.PENDING: "pending",
    MessageState.LEASED: "leased",
    MessageState.DEAD: "dead",
}
_ARRIVALS = (b'{"kind":"accepted"', b'{"kind":"rejected"')


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for. `sender` and `endpoint` are patterns; None is any.

    What the journal got after `seq` is left out: whoever looked into memory did not see it.
    """

    id: str | None = None
    sender: str | None = None
    endpoint: str | None = None
    outcome: str | None = None
    since_us: int = 0
    until_us: int = 1 << 62
    limit: int = 100
    seq: int = 1 << 62


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message at one endpoint. `reason` says why it is dead or was rejected.

    `count` are alike: a flood is written down as one. `gone`: how, is not in what was read.
    """

    id: str
    at_us: int
    sender: str
    endpoint: str
    bytes: int
    outcome: Outcome
    reason: str = ""
    count: int = 1


class SearchResult(msgspec.Struct, kw_only=True):
    """`messages`, the newest first. Those that are gone were looked for from `since_us` on.

    `more`: there may be others, older or beyond the limit.
    """

    messages: list[FoundMessage]
    since_us: int
    more: bool


def find_in_memory(state: RelayState, query: SearchQuery) -> list[FoundMessage]:
    """Messages that are there, the newest of each mailbox first; at most `limit` of each."""
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
            if _matches(one, query):
                found.append(one)
    return found


def find_in_journal(
    directory: Path, query: SearchQuery, known: set[tuple[str, str]]
) -> SearchResult:
    """Arrivals in the newest journal, but for those that are `known` by id and endpoint."""
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
            if event.at_us < query.since_us:
                return found
            one = _from_journal(event, chunks[at::-1], stop)
            if _matches(one, query):
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
    )


def _matches(one: FoundMessage, query: SearchQuery) -> bool:
    return (
        (query.id is None or one.id == query.id)
        and (query.outcome is None or one.outcome == query.outcome)
        and query.since_us <= one.at_us <= query.until_us
        and (query.sender is None or matches_pattern(one.sender, query.sender))
        and (query.endpoint is None or matches_pattern(one.endpoint, query.endpoint))
    )


def _newest_chunks(directory: Path) -> Iterator[bytes]:
    """Whole lines of the newest `WINDOW_BYTES`, up to the last commit, the newest piece first."""
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
    """Bytes that every line in question holds: the rarest that can be known."""
    if query.id is not None:
        return f'"id":"{query.id}"'.encode()
    for name in (query.sender, query.endpoint):
        if name is not None and is_subject(name):
            return f'"{name}"'.encode()
    begin = (query.sender or "").partition("*")[0].partition(">")[0]
    return f'"sender":"{begin}'.encode()


def _lines_with(needle: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Where the lines that hold `needle` begin and end, the last first."""
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
        return None  # damaged: what is wrong with the journal is told elsewhere
    return event if isinstance(event, Accepted | Rejected) else None


def _from_journal(event: Accepted | Rejected, later: list[bytes], after: int) -> FoundMessage:
    outcome: Outcome = "rejected"
    reason, count = "", 1
    if isinstance(event, Rejected):
        said = event.detail.startswith(event.reason)  # then it need not be said twice
        reason = event.detail if said else f"{event.reason}: {event.detail}"
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
    )


def _outcome_of(event: Accepted, later: list[bytes], after: int) -> Outcome:
    """How an accepted message went: by the first line about it that says so."""
    if not event.endpoint:
        return "gone"  # nobody was there
    needles = f'"id":"{event.id}"'.encode(), f'"endpoint":"{event.endpoint}"'.encode()
    for data in later:
        at = after
        while (at := data.find(needles[0], at)) >= 0:
            start, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if data.find(needles[1], start, stop) >= 0:
                if data.startswith(b'{"kind":"acked"', start):
                    return "acked"
                if data.startswith(b'{"kind":"expired"', start):
                    return "purged" if data.find(b'"was":"dead"', start, stop) >= 0 else "expired"
            at = stop
        after = 0
    return "gone"


def _begin_us(chunks: list[bytes]) -> int:
    """When the oldest line that was read happened; 0 if nothing was read."""
    for data in reversed(chunks):
        for line in data[: 1 << 20].splitlines():
            try:
                return decode_event(line).at_us
            except msgspec.DecodeError:
                continue
    return 0
