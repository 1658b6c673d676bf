"""Read access to an open relay, for servers, dashboards and metrics.

Rule 1  Nothing here changes a message, a setting or the journal.
Rule 2  Long walks yield to the event loop; the journal is read in a thread.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from waypost.policy.bounds import (
    lease_max_messages,
    names_visited_per_endpoint_max,
    peek_max_bytes,
    thread_max_messages,
)
from waypost.policy.breakers import CircuitBreakers, CircuitBreakerState
from waypost.policy.errors import InvalidInput
from waypost.policy.reserved_names import is_reserved
from waypost.policy.tiers import Tier
from waypost.relay.config.settings_file import SettingsFile
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.inspection.contents import MailboxContents, read_contents
from waypost.relay.inspection.dead_letters import DeadLetterPage, page_dead_letters
from waypost.relay.inspection.paging import Cursor
from waypost.relay.inspection.parents import Parents
from waypost.relay.inspection.scheduled import list_scheduled
from waypost.relay.inspection.search import (
    SearchQuery,
    SearchResult,
    find_in_journal,
    find_in_memory,
    page_of,
)
from waypost.relay.inspection.stats import (
    HasProblem,
    JournalStatus,
    MailboxCounts,
    MailboxStats,
    RelayMetrics,
    Survey,
    Totals,
    add_up,
    count_mailbox,
    mailbox_stats,
    stats_of,
    summarize,
)
from waypost.relay.inspection.threads import describe_thread, search_thread
from waypost.relay.inspection.usage import measure_usage
from waypost.relay.journal.history import Histories
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.rejection_counts import RejectionCounts
from waypost.wire.events import AnyEvent, BreakerMoved
from waypost.wire.findings import SenderRejections
from waypost.wire.history_bodies import Thread
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.stats_bodies import InboxUsage

WALK_STEP = 250
"""Mailboxes counted before the event loop gets its turn: well below a millisecond."""

_IN_MEMORY = ("pending", "leased", "dead")


class Inspector:
    """Reads the state of one open relay. `parents` finds the parents of follow-ups."""

    def __init__(  # noqa: PLR0913, PLR0917 - what an inspector reads
        self,
        ledger: Ledger,
        settings: SettingsFile,
        breakers: CircuitBreakers,
        data: DataDir,
        payloads: PayloadStore,
        histories: Histories,
        parents: Parents,
        rejections: RejectionCounts,
        mailboxes: HasProblem,
        checked: Sequence[HasProblem],
        damaged: Collection[object],
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._settings = settings
        self._breakers = breakers
        self._data = data
        self._payloads = payloads
        self._histories = histories
        self.parents = parents
        self._rejections = rejections
        self._mailboxes = mailboxes
        self._checked = checked
        self._damaged = damaged

    # The relay as a whole

    @property
    def data_dir(self) -> Path:
        """The data directory of the relay."""
        return self._data.root

    @property
    def counts(self) -> Counter[str]:
        """Events since the relay was opened, by kind; do not change it."""
        return self._state.counts

    @property
    def senders_tracked(self) -> int:
        """The number of senders with a rate window."""
        return len(self._state.windows)

    def metrics(self) -> RelayMetrics:
        """Return statistics and problems of the whole relay.

        Visits all mailboxes at once: with very many of them, await `survey` on a busy event loop,
        and then `metrics_of`.
        """
        return self._metrics(
            list(mailbox_stats(self._state, self._settings.current)), self.totals()
        )

    async def metrics_of(self, subjects: Sequence[str], totals: Totals) -> RelayMetrics:
        """Return the same, but of the mailboxes only these, with turns for the event loop."""
        mailboxes = self._state.mailboxes
        shown: list[MailboxStats] = []
        for begin in range(0, len(subjects), WALK_STEP):
            found = (mailboxes.get(one) for one in subjects[begin : begin + WALK_STEP])
            shown += [stats_of(one, self._settings.current) for one in found if one is not None]
            await asyncio.sleep(0)
        return self._metrics(shown, totals)

    def _metrics(self, endpoints: list[MailboxStats], totals: Totals) -> RelayMetrics:
        state, journal, settings = self._state, self.journal(), self._settings.current
        by_status = {
            "pending": totals.pending,
            "scheduled": totals.scheduled,
            "leased": totals.leased,
            "dead": totals.dead,
        }
        counts = state.counts.items()
        return RelayMetrics(
            seq=journal.seq,
            commits=journal.commits,
            total_messages=sum(by_status.values()),
            by_status=by_status,
            events={kind: count for kind, count in counts if "." not in kind},
            rejected={kind[9:]: count for kind, count in counts if kind.startswith("rejected.")},
            endpoints=endpoints,
            breakers=self.breakers(),
            senders_tracked=self.senders_tracked,
            storage=settings.storage,
            durability=settings.durability,
            storage_full=journal.full,
            problems=self.problems(),
        )

    def problems(self) -> list[str]:
        """Return what needs an operator's attention, one text each."""
        found = [one.problem for one in self._checked]
        found.append(str(self._ledger.journal.failure or ""))
        found += [f"journal damage set aside: {one}" for one in self._damaged]
        return [problem for problem in found if problem]

    @property
    def mailbox_problem(self) -> str:
        """Why no mailbox can be created; empty while they can be."""
        return self._mailboxes.problem

    async def journal_failure(self) -> str:
        """Wait until the journal fails for good; return why."""
        await self._ledger.journal.failed.wait()
        return str(self._ledger.journal.failure)

    def journal(self) -> JournalStatus:
        """Return the position and the health of the journal."""
        journal = self._ledger.journal
        failure = "" if journal.failure is None else str(journal.failure)
        at_us = journal.committed.at_us
        return JournalStatus(
            self._state.seq, journal.commits, journal.full, failure, journal.full_because, at_us
        )

    def breakers(self) -> dict[str, CircuitBreakerState]:
        """Return the circuit breakers that are not at rest, by endpoint."""
        return self._breakers.get_states()

    def rejections(self) -> list[SenderRejections]:
        """Return the senders that were rejected in the last minutes, most rejections first."""
        return self._rejections.recent(self._ledger.now_us())

    def breaker_moves(self) -> list[BreakerMoved]:
        """Return the latest state changes of circuit breakers, the newest first."""
        return list(reversed(self._state.breaker_moves))

    def take_wait_times_us(self) -> list[int]:
        """Return the times from arrival to acknowledgement since the last call, sorted.
        Only the newest `waits_in_memory_max` are kept. For one caller: they are returned once."""
        waits = sorted(self._state.waits_us)
        self._state.waits_us.clear()
        return waits

    # Mailboxes

    def endpoint_count(self) -> int:
        """Return the number of registered endpoints."""
        return len(self._state.endpoints)

    async def names_after(self, after: str, limit: int) -> list[str]:
        """Return the first `limit` subjects of registered endpoints after `after`, in order."""
        found: list[str] = []
        async for step in self._walk():
            found += [one.subject for one in step if one.registered and one.subject > after]
        return await asyncio.to_thread(heapq.nsmallest, limit, found)

    def subjects(self) -> Iterator[str]:
        """Yield the subjects of registered endpoints, in order of registration."""
        return (mailbox.subject for mailbox in self._state.registered())

    def has_mailbox(self, subject: str) -> bool:
        """Return whether `subject` is registered, or was and left messages behind."""
        return subject in self._state.mailboxes

    def match_endpoints(self, pattern: str, limit: int) -> list[str] | None:
        """Return the endpoints that match a pattern; None if they are more than `limit`, or so
        many names have to be tried. Reserved names are left out."""
        visits_max = limit * names_visited_per_endpoint_max
        found = self._state.endpoints.within_bounds(
            pattern, lambda one: not is_reserved(one.subject), limit, visits_max
        )
        return None if found is None else [one.subject for one in found]

    def subject_of(self, endpoint_hash: str) -> str | None:
        """Return the subject of the mailbox with this hash, or None."""
        mailbox = self._state.directories.get(endpoint_hash)
        return None if mailbox is None else mailbox.subject

    def is_empty(self, subject: str) -> bool:
        """Return whether `subject` has a mailbox without messages or dead letters."""
        mailbox = self._state.mailboxes.get(subject)
        return mailbox is not None and mailbox.empty

    def depth(self, subject: str) -> int:
        """Return the number of pending and leased messages of `subject`; 0 without a mailbox."""
        mailbox = self._state.mailboxes.get(subject)
        return 0 if mailbox is None else mailbox.occupancy.depth - mailbox.scheduled_count

    def mailbox_count(self) -> int:
        """Return the number of mailboxes, of registered endpoints and others."""
        return len(self._state.mailboxes)

    def totals(self) -> Totals:
        """Add up all mailboxes at once."""
        totals = Totals()
        add_up(totals, self._state.mailboxes.values())
        return totals

    async def survey(self, fullest: int) -> Survey:
        """Count all mailboxes once, and return the totals and the `fullest`.

        The event loop gets its turn in between: the counts are of about one moment.
        """
        totals, held, empty = Totals(), list[MailboxCounts](), list[str]()
        async for step in self._walk():
            settings = self._settings.current
            add_up(totals, step)
            for one in step:
                if one.empty:
                    empty.append(one.subject)
                else:
                    held.append(count_mailbox(one, settings))
        if len(held) + len(empty) <= WALK_STEP:
            return summarize(totals, held, empty, fullest)
        return await asyncio.to_thread(summarize, totals, held, empty, fullest)

    async def _walk(self) -> AsyncIterator[list[Mailbox]]:
        """Yield all mailboxes in lists of at most `WALK_STEP`, with turns for the event loop."""
        walk = iter(list(self._state.mailboxes.values()))
        while step := list(islice(walk, WALK_STEP)):
            yield step
            await asyncio.sleep(0)

    def usage(self, subject: str, senders: int, *, connected: bool) -> InboxUsage:
        """Return usage, tiers and quotas of one inbox, and the `senders` with the most bytes.

        Raises `UnknownEndpoint`.
        """
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is None:
            raise UnknownEndpoint(subject)
        now_us, settings = self._ledger.now_us(), self._settings.current
        usage = measure_usage(self._state, mailbox, settings, now_us, senders)
        usage.connected = connected
        return usage

    def tier(self, sender: str, recipient: str, now_ms: int | None = None) -> Tier:
        """Return the tier of a message from `sender` to `recipient`, sent now or at `now_ms`."""
        if now_ms is None:
            now_ms = self._ledger.now_us() // 1000
        window_ms = self._settings.current.qos.bidirectional_window_ms
        return self._state.tier(sender, recipient, now_ms, window_ms)

    def have_exchanged(self, one: str, other: str) -> bool:
        """Return whether two agents have written to each other, as far as the relay remembers."""
        seen = self._state.last_seen
        return seen.get((one, other)) is not None and seen.get((other, one)) is not None

    # Messages

    def dead_letters(
        self, limit: int, subject: str | None, kind: str | None, after: Cursor
    ) -> DeadLetterPage:
        """Return dead letters of one endpoint or all, the oldest failure first, after a cursor.

        With `kind`, only those with this kind of reason.
        """
        return page_dead_letters(self._state, self._payloads, limit, subject, kind, after)

    def scheduled(
        self, sender: str | None = None, limit: int | None = None
    ) -> list[ScheduledMessage]:
        """Return scheduled messages of one sender, or all: those due first, at most `limit`."""
        return list_scheduled(self._state, self._payloads, sender, limit)

    def peek(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None = None,
        max_bytes: int = peek_max_bytes,
    ) -> MailboxContents:
        """Return the oldest pending messages of `subject`, at most `max_bytes` or one message.

        Messages larger than `max_size_bytes` are left out. Raises `UnknownEndpoint`.
        """
        wanted: object = limit
        if not isinstance(wanted, int) or not 1 <= wanted <= lease_max_messages:
            raise InvalidInput(f"limit must be 1 to {lease_max_messages:,}, not {limit!r}")
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is None:
            raise UnknownEndpoint(subject)
        now_ms, committed = self._ledger.now_us() // 1000, self._ledger.journal.committed.seq
        return read_contents(
            mailbox,
            self._payloads,
            limit,
            max_size_bytes,
            now_ms,
            max_bytes=max_bytes,
            committed_seq=committed,
        )

    async def search(self, query: SearchQuery) -> SearchResult:
        """Find messages in memory and in the newest part of the journal, the newest first."""
        await self._ledger.sync()
        if query.thread is not None:
            return await self._search_thread(query, query.thread)
        query = msgspec.structs.replace(query, seq=self._state.seq)
        stored = find_in_memory(self._state, query)
        found = SearchResult(messages=[], since_us=0, more=False)
        if query.outcome not in _IN_MEMORY:
            known = {(one.id, one.endpoint) for one in stored}
            found = await asyncio.to_thread(find_in_journal, self._data.journal, query, known)
        return page_of([*stored, *found.messages], query, found)

    async def _search_thread(self, query: SearchQuery, thread: str) -> SearchResult:
        def read() -> SearchResult:
            arrivals = self._histories.find_thread(thread)
            messages = search_thread(query, arrivals, self._histories.find)
            cut = SearchResult(messages=[], since_us=0, more=len(arrivals) > thread_max_messages)
            return page_of(messages, query, cut)

        return await asyncio.to_thread(read)

    async def events_of(self, message_id: str) -> list[AnyEvent]:
        """Return the events about one message, in the order of the journal."""
        await self._ledger.sync()
        return await asyncio.to_thread(self._histories.find, message_id)

    async def thread(self, thread: str, agent: str | None = None) -> Thread:
        """Return the messages of a conversation, in order, with their outcomes.

        With `agent`, only what it may see.
        """

        def read() -> Thread:
            arrivals = self._histories.find_thread(thread)
            return describe_thread(thread, arrivals, self._histories.find, agent)

        await self._ledger.sync()
        return await asyncio.to_thread(read)
