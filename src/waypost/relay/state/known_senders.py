"""What the relay knows of senders: their rate windows, whom they wrote to, and the ids they chose.

Rule 1  A publish counts once in the rate window: its line with `part` 0. A message that another
        partition forwarded was counted there.
Rule 2  The result of an id that its sender chose is kept, and so is that of every message that
        another partition forwarded: it may arrive again.
"""

from collections.abc import Callable

from waypost.policy.bounds import duplicates_in_memory_max, last_seen_in_memory_max_pairs
from waypost.policy.rate_limits import RateWindows, network_window
from waypost.policy.reasons import UNCOUNTED
from waypost.policy.subjects import is_literal
from waypost.relay.state.duplicates import (
    Duplicate,
    add_decision,
    duplicate_key,
    first_result,
    nothing_yet,
)
from waypost.relay.state.write_behind import WriteBehind
from waypost.wire.events import Accepted, Decided, Forwarded, Rejected

Publish = Accepted | Rejected | Forwarded


class KnownSenders:
    """Rate windows, last-seen pairs and duplicate ids."""

    def __init__(self, hash_of: Callable[[str], str]) -> None:
        """Take `hash_of(endpoint)`, which returns the hash of its mailbox."""
        self._hash_of = hash_of
        self.windows = RateWindows()
        self.last_seen: WriteBehind[tuple[str, str], int] = WriteBehind(
            last_seen_in_memory_max_pairs
        )
        self.duplicates: WriteBehind[str, Duplicate] = WriteBehind(duplicates_in_memory_max)

    def count_publish(self, event: Publish) -> None:
        """Count a publish in its sender's rate window, once, if it passed the rate limit."""
        if event.part == 0 and event.origin is None and passed_rate_limit(event):
            self._count(event)

    def note_arrival(self, event: Accepted | Rejected) -> None:
        """Update rate window, last-seen pair and duplicate id of an arrival."""
        sender, endpoint, at_ms = event.sender, event.endpoint, event.at_us // 1000
        is_forwarded = event.origin is not None
        if event.part == 0 and not is_forwarded:
            self.windows.record(sender, at_ms)
            if event.network:
                self.windows.record(network_window(sender, event.network), at_ms)
        if endpoint:
            self.last_seen.put((sender, endpoint), at_ms)
        if event.chosen_id or is_forwarded:
            key = duplicate_key(sender, event.id)
            known = self.duplicates.get(key) if event.part else None
            hash_ = self._hash_of(endpoint) if endpoint else ""
            self.duplicates.put(key, first_result(known, event, hash_))

    def note_forwarded(self, event: Forwarded) -> None:
        """Do the same for a message to another partition; its result is known later."""
        if event.part == 0:
            self._count(event)
            if event.chosen_id:
                self.duplicates.put(duplicate_key(event.sender, event.id), nothing_yet(event))
        if is_literal(event.subject):
            self.last_seen.put((event.sender, event.subject), event.at_us // 1000)

    def note_decided(self, event: Decided) -> None:
        """Add the decision of another partition to the result, if that is kept."""
        key = duplicate_key(event.sender, event.id)
        known = self.duplicates.get(key)
        if known is not None:
            self.duplicates.put(key, add_decision(known, event))

    def note_seen(self, sender: str, endpoint: str, seen_ms: int) -> None:
        """Note that `sender` wrote to `endpoint` at `seen_ms`."""
        pair = (sender, endpoint)
        self.last_seen.put(pair, max(seen_ms, self.last_seen.get(pair) or 0))

    def _count(self, event: Publish) -> None:
        at_ms = event.at_us // 1000
        self.windows.record(event.sender, at_ms)
        if event.network:
            self.windows.record(network_window(event.sender, event.network), at_ms)


def passed_rate_limit(event: Publish) -> bool:
    """Return whether an arrival passed its sender's rate limit, accepted or not."""
    return not (isinstance(event, Rejected) and event.reason in UNCOUNTED)
