"""The ledger: how a decision becomes durable and takes effect (record → commit → notify).

Every operation of the relay decides first, then records events here. Recording numbers the
event, queues it for the journal and applies it to the state at once, so that the next decision
sees it. Callers that must not continue before it is durable await `sync`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from waypost.policy.bounds import payload_inline_max_bytes
from waypost.policy.subjects import validate_subject
from waypost.relay.clock import Clock
from waypost.relay.journal.journal import Journal
from waypost.relay.state.mailbox import Message
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Accepted, AnyEvent, Forwarded, MailboxEvent, PairSeen, Rejected


class OneTime:
    """A block without `await` in which the ledger's time stands still; blocks may be nested.

    A decision is made at one time, which all its events have: the pipeline replays it with that.
    """

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._depth = 0

    def __enter__(self) -> int:
        self._depth += 1
        ledger = self._ledger
        if self._depth == 1:
            ledger.held_us = ledger.now_us()
        return ledger.held_us

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._ledger.held_us = 0


class Ledger:
    """Keeps the journal and the state in step."""

    def __init__(self, journal: Journal, state: RelayState, clock: Clock) -> None:
        self.journal = journal
        self.state = state
        self._clock = clock
        self._last_us = state.at_us
        self._ahead_us = 0
        self.held_us = 0
        """The time within `one_time`, else 0."""
        self.one_time = OneTime(self)
        self._woken: dict[str, None] = {}
        self.listeners = journal.listeners
        self.listeners.on_commit(self._notify)

    def now_us(self) -> int:
        """Return the time, which never goes back: it runs on if the clock is set back.

        Standing still until the clock has caught up would be worse: no lease and no wait would
        end, and a sender at its rate limit would stay there. Within `one_time` it stands still.
        """
        if self.held_us:
            return self.held_us
        now_us = self._clock() + self._ahead_us
        if now_us >= self._last_us:
            self._last_us = now_us
            return now_us
        self._ahead_us += self._last_us - now_us
        return self._last_us

    def record(self, event: AnyEvent) -> Message | None:
        """Journal a decision and apply it; return the message it put into a mailbox, if any."""
        return self.state.apply(event, self.journal.append(event))

    def record_arrival(self, event: Accepted | Rejected | Forwarded, content: bytes) -> Message:
        """Journal an arrival with its payload `content`, apply it, and return its message.

        A large payload goes into the segment's body file, a small one into the event itself.
        """
        if len(content) > payload_inline_max_bytes:
            location = self.journal.append(event, content)
        else:
            event.payload = msgspec.Raw(content)
            location = self.journal.append(event)
        message = self.state.apply(event, location)
        assert message is not None
        return message

    def record_all(self, events: Sequence[MailboxEvent], *, is_awaited: bool = True) -> None:
        """Journal and apply decisions of one kind about messages stored before.

        Those that are not awaited become durable a little later, unless a caller waits for `sync`.
        """
        if events:
            self.journal.append_all(events, is_awaited=is_awaited)
            self.state.apply_all(events)

    def record_pairs(self, pairs: Iterable[tuple[str, str, int]]) -> int:
        """Record the last contact (ms) of sender-endpoint pairs; return how many were news."""
        count = 0
        for sender, endpoint, seen_ms in pairs:
            known_ms = self.state.last_seen.get((sender, endpoint))
            if known_ms is not None and known_ms >= seen_ms:
                continue
            validate_subject(sender)
            validate_subject(endpoint)
            self.record(
                PairSeen(at_us=self.now_us(), sender=sender, endpoint=endpoint, seen_ms=seen_ms)
            )
            count += 1
        return count

    def wake(self, endpoint: str) -> None:
        """Notify consumers of `endpoint` once everything recorded is durable."""
        self._woken[endpoint] = None

    async def sync(self) -> None:
        """Wait until every recorded event is durable."""
        await self.journal.sync()

    def _notify(self) -> None:
        woken, self._woken = self._woken, {}
        committed = self.journal.committed.seq
        for endpoint in woken:
            mailbox = self.state.mailboxes.get(endpoint)
            if mailbox is None:
                continue
            if mailbox.queue and mailbox.queue[-1].order > committed:
                self._woken[endpoint] = None  # its newest message is in a later batch
            self.listeners.visible(endpoint)
