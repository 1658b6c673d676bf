"""How a decision becomes durable and takes effect: record → (commit) → notify.

Every operation of the relay decides first, then records events here. Recording numbers the
event, queues it for the journal and folds it into the state at once, so that the next decision
sees it; whoever must not act before it is durable awaits `sync`.
"""

from collections.abc import Callable

from waypost.relay.clock import Clock
from waypost.relay.memory.state import RelayState
from waypost.relay.record.journal import Journal
from waypost.wire.events import AnyEvent


class Ledger:
    """The journal and the state it adds up to, kept in step."""

    def __init__(self, journal: Journal, state: RelayState, clock: Clock) -> None:
        self.journal = journal
        self.state = state
        self._clock = clock
        self._last_us = state.at_us
        self._ahead_us = 0
        self._woken: dict[str, None] = {}
        self.on_visible: Callable[[str], None] = lambda endpoint: None
        journal.on_commit = self._notify

    def now_us(self) -> int:
        """The time, never going back. After the clock was set back, it goes on from where it was.

        Standing still until the clock has caught up would be worse: no lease and no wait would
        end, and a sender at its limit would stay there.
        """
        now_us = self._clock() + self._ahead_us
        if now_us >= self._last_us:
            self._last_us = now_us
            return now_us
        self._ahead_us += self._last_us - now_us
        return self._last_us

    def record(self, event: AnyEvent, body: bytes | None = None) -> None:
        """Take note of a decision."""
        place = self.journal.append(event, body)
        self.state.apply(event, place)

    def wake(self, endpoint: str) -> None:
        """Once what was recorded is durable, tell whoever waits for mail of `endpoint`."""
        self._woken[endpoint] = None

    async def sync(self) -> None:
        """Wait until everything recorded is durable."""
        await self.journal.sync()

    def _notify(self) -> None:
        woken, self._woken = self._woken, {}
        committed = self.journal.committed.seq
        for endpoint in woken:
            mailbox = self.state.mailboxes.get(endpoint)
            if mailbox is None:
                continue
            if mailbox.queue and mailbox.queue[-1].order > committed:
                self._woken[endpoint] = None  # its newest mail is in a later batch
            self.on_visible(endpoint)
