"""The relay as its operator sees it: dead letters, numbers, stories, repairs."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from waypost.policy.subjects import validate_subject
from waypost.relay.delivery.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.stats import Metrics, measure
from waypost.relay.journal.history import MessageHistory, tell
from waypost.relay.runtime import Runtime
from waypost.wire.events import PairSeen


class Operating(Protocol):
    """What `Relay` offers to an operator."""

    @property
    def parts(self) -> Runtime:
        """The parts of the open relay."""
        ...

    async def dead_letters(
        self, subject: str | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """Dead letters of one endpoint or all, the oldest failure first, at most `limit`."""
        return self.parts.dead_letters.listing(subject, limit)

    async def dead_letter_groups(self, subject: str | None = None) -> list[DeadLetterGroup]:
        """Dead letters by endpoint and reason, the largest group first."""
        return self.parts.dead_letters.group(subject)

    async def redrive(self, ids: str | Iterable[str], subject: str | None = None) -> int:
        """Put dead letters back into their mailboxes, at the end; gives how many were found.

        A person has decided: no check is repeated. The time to live still holds.
        """
        count = self.parts.dead_letters.redrive(ids, subject)
        await self.parts.ledger.sync()
        return count

    async def purge_dead_letters(
        self, older_than: datetime | timedelta | None = None, subject: str | None = None
    ) -> int:
        """Throw away dead letters that failed before an instant, or longer ago than a duration.

        Without `older_than`, all of them. Gives how many.
        """
        before_us = None
        if isinstance(older_than, timedelta):
            before_us = self.parts.ledger.now_us() - older_than // timedelta(microseconds=1)
        elif older_than is not None:
            before_us = int(older_than.timestamp() * 1_000_000)
        count = self.parts.dead_letters.purge(before_us, subject, "purged")
        await self.parts.ledger.sync()
        return count

    def metrics(self) -> Metrics:
        """Numbers and problems at a glance."""
        parts = self.parts
        journal = (parts.journal.commits, parts.journal.full)
        breakers, problems = parts.outcomes.breakers, self.problems()
        return measure(parts.ledger.state, parts.settings.current, breakers, journal, problems)

    def problems(self) -> list[str]:
        """What an operator should do something about, in words."""
        parts = self.parts
        found = [
            *(parts.settings.problem, parts.access.problem, parts.checkpoints.problem),
            str(parts.journal.failure or ""),
            *(f"journal damage set aside: {one}" for one in parts.report.damaged),
        ]
        return [problem for problem in found if problem]

    async def explain(self, message_id: str) -> MessageHistory:
        """Everything that happened to a message: each check, each delivery, each outcome."""
        await self.parts.ledger.sync()
        return await asyncio.to_thread(tell, self.parts.data.journal, message_id)

    async def rebuild_index(self) -> int:
        """Make the index anew from the state; gives how many messages it holds."""
        await self.parts.ledger.sync()
        return await self.parts.checkpoints.rebuild()

    async def seal_journal(self) -> Path:
        """Close the current journal segment, so that everything so far can be read as a whole."""
        self.parts.journal.seal_soon()
        await self.parts.ledger.sync()
        return self.parts.data.journal

    async def remember_pairs(self, pairs: Iterable[tuple[str, str, int]]) -> int:
        """Take over who wrote to whom and when (ms) from elsewhere; gives how many were news."""
        ledger, count = self.parts.ledger, 0
        for sender, endpoint, seen_ms in pairs:
            known_ms = ledger.state.last_seen.get((sender, endpoint))
            if known_ms is not None and known_ms >= seen_ms:
                continue
            validate_subject(sender)
            validate_subject(endpoint)
            ledger.record(
                PairSeen(at_us=ledger.now_us(), sender=sender, endpoint=endpoint, seen_ms=seen_ms)
            )
            count += 1
        await ledger.sync()
        return count

    def sweep(self) -> None:
        """Do the housekeeping now instead of at its next turn."""
        self.parts.sweeper.sweep()
