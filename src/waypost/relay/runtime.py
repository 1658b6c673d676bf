"""The parts of an open relay: builds them, starts them, and closes them in order."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from waypost.policy.errors import InvalidInput
from waypost.policy.settings import Settings
from waypost.relay.clock import Clock, Timers
from waypost.relay.config.access_file import AccessFile
from waypost.relay.config.file_watcher import FileWatcher
from waypost.relay.config.settings_file import SettingsFile
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.delivery.arrivals import Arrivals
from waypost.relay.delivery.askers import Askers
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.consumers import Consumers
from waypost.relay.delivery.dead_letters import DeadLetters
from waypost.relay.delivery.deliver import Deliverer
from waypost.relay.delivery.drop_in_search import DropInSearch
from waypost.relay.delivery.drop_ins import DropIns
from waypost.relay.delivery.endpoints import Endpoints
from waypost.relay.delivery.forwarding import Forwarding, Partition
from waypost.relay.delivery.handlers import HandlerRunner
from waypost.relay.delivery.leases import Leases
from waypost.relay.delivery.life_signs import LifeSigns
from waypost.relay.delivery.publish import Publishing
from waypost.relay.delivery.recipients import Recipients
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.requests import Requests
from waypost.relay.delivery.returns import Returns
from waypost.relay.delivery.schedule import Schedule
from waypost.relay.delivery.signals import PressureSignals, Signals
from waypost.relay.delivery.subscriptions import MessageHandler, Subscriptions
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import PartitionUnavailable, RelayStopped
from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.parents import Parents
from waypost.relay.inspection.stats import HasProblem
from waypost.relay.journal.history import Histories
from waypost.relay.journal.journal import Journal
from waypost.relay.journal.listeners import CommitListeners
from waypost.relay.journal.replicated import Ownership
from waypost.relay.journal.writer import JournalWriter, MakeWriter
from waypost.relay.maildir.maildir import Maildir
from waypost.relay.maildir.mirror import MailboxMirror, MaildirFiles, NoFiles
from waypost.relay.maildir.reconcile import reconcile
from waypost.relay.maintenance.journal_tasks import JournalTasks
from waypost.relay.maintenance.signing import JournalSigner, Signer
from waypost.relay.maintenance.state_tasks import MailTasks, StateTasks
from waypost.relay.maintenance.sweeper import Sweeper
from waypost.relay.state.checkpoints import Checkpoints
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.recent import RecentlyAcked
from waypost.relay.state.recovery import Recovered
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

log = logging.getLogger("waypost.relay")


class Given(NamedTuple):
    """What a relay is given by its caller, beside the data directory.

    With `ownership`, its journal is replicated, and only the owner of that log may write it. With
    `partition`, it is one of several relays that share all subjects.
    """

    settings: Settings
    clock: Clock
    create_mailbox: Callable[[str], bool]
    ownership: Ownership | None = None
    partition: Partition | None = None

    @property
    def make_writer(self) -> MakeWriter:
        """Return what creates the journal's writer."""
        return self.ownership.make_writer if self.ownership is not None else JournalWriter


class Runtime:
    """The parts of one open relay. Create it on the event loop it will run on."""

    def __init__(
        self,
        data: DataDir,
        settings: SettingsFile,
        access: AccessFile,
        recovered: Recovered,
        given: Given,
    ) -> None:
        self.data, self.settings, self.access = data, settings, access
        self.index, self.report = recovered.index, recovered.report
        self.closed = False
        self.partition = given.partition
        self.signing: JournalSigner | None = None
        self._build_state(recovered, given)
        self._build_delivery(given.create_mailbox)
        histories = Histories(data.journal)
        self._checked: list[HasProblem] = [
            settings,
            access,
            self.checkpoints,
            self.endpoints,
            recovered.report,
        ]
        self.inspector = Inspector(
            self.ledger,
            settings,
            self.breaker_feedback.breakers,
            data,
            self.payloads,
            histories,
            Parents(self.ledger, self.payloads, histories, self.acked, settings.get),
            rejections=self.rejections.counts,
            mailboxes=self.endpoints,
            checked=self._checked,
            damaged=recovered.report.damaged,
        )
        self.sweeper = self._make_sweeper()
        self.file_watcher = self._make_file_watcher()

    def _build_state(self, recovered: Recovered, given: Given) -> None:
        """Build the journal, the state, and everything a transition of a message touches."""
        current, clock = self.settings.current, given.clock
        self.journal = Journal(
            self.data.journal,
            recovered.position,
            current,
            CommitListeners(),
            recovered.head,
            given.make_writer,
        )
        self.ledger = Ledger(self.journal, recovered.state, clock)
        self.timers = Timers(clock, self.ledger.now_us)
        self.checkpoints = Checkpoints(self.index, recovered.state, self.journal)
        self.payloads = PayloadStore(self.data.journal, lambda: self.journal.committed.seq)
        self.breaker_feedback = BreakerFeedback(self.ledger, current)
        self.maildir = Maildir(self.data.mailboxes)
        self.mirror = self._make_mirror()
        self.askers = Askers(self.ledger)
        self.transitions = Transitions(
            self.ledger, self.mirror, self.breaker_feedback, self.payloads, self.askers
        )

    def _build_delivery(self, create_mailbox: Callable[[str], bool]) -> None:
        """Build the path of a message: publish and deliver, then lease, consume or handle.

        The order of leases, consumers and handlers is the order in which they are notified.
        """
        get = self.settings.get
        self.forwarding: Forwarding | None = None
        if self.partition is not None:
            self.forwarding = Forwarding(self.partition, self.ledger, self.timers, self.payloads)
        self.signals = Signals()
        self.rejections = RejectionLog(self.ledger)
        self.subscriptions = Subscriptions(self.data.subscriptions)
        self.schedule = Schedule(self.ledger, self.transitions, self.timers)
        deliverer = Deliverer(
            self.ledger.state,
            self.transitions,
            self.breaker_feedback,
            self.rejections,
            PressureSignals(self.signals),
            self.is_consumed,
            forwarding=self.forwarding,
        )
        recipients = Recipients(self.ledger.state, self.access, create_mailbox)
        self.arrivals = Arrivals(self.ledger, get, recipients, deliverer, self.rejections)
        self.publishing = Publishing(
            self.ledger,
            get,
            self.access,
            self.arrivals,
            self.rejections,
            recipients,
            forwarding=self.forwarding,
        )
        self.returns = Returns(self.ledger, self.transitions, self.timers, self.askers, get)
        self.claims = Claims(self.ledger, self.transitions, self.returns, get)
        self.leases = Leases(
            self.ledger, self.claims, self.transitions, self.payloads, self.timers, get
        )
        self._build_consumers()
        self._build_endpoints()

    def _build_consumers(self) -> None:
        """Build what takes messages out of mailboxes, beside leases."""
        get = self.settings.get
        self.acked = RecentlyAcked()
        self.life = LifeSigns(self.ledger, self.timers, get)
        self.consumers = Consumers(
            self.ledger,
            self.claims,
            self.transitions,
            self.payloads,
            self.acked,
            life=self.life,
            settings=get,
            on_left=self.return_probes,
        )
        self.handlers = HandlerRunner(
            self.ledger, self.subscriptions, self.claims, self.transitions, self.payloads
        )

    def _build_endpoints(self) -> None:
        """Build the parts that use the path: endpoints, requests, dead letters and drop-ins."""
        probe = self.maildir.probe if self.uses_files else lambda: None
        self.endpoints = Endpoints(self.ledger, self.mirror, probe, self.partition)
        self.requests = Requests(
            self.ledger,
            self.timers,
            self.endpoints,
            self.subscriptions,
            self.publishing,
            self.askers,
        )
        self.dead_letters = DeadLetters(self.ledger, self.transitions, self.payloads)
        leaving = self.mirror.leaving if isinstance(self.mirror, MaildirFiles) else ()
        self.drop_ins = DropIns(self.ledger, self.maildir, self.publishing, leaving)
        self.drop_in_search = DropInSearch(self.drop_ins, self.maildir, self.ledger.state)

    @property
    def uses_files(self) -> bool:
        """Whether mailboxes are mirrored as Maildir files."""
        return self.settings.current.storage == "maildir"

    def subscribe(self, pattern: str, handler: MessageHandler) -> Callable[[], None]:
        """Add a handler and wake it; return a function that removes it."""
        stop = self.subscriptions.add(pattern, handler, self.ledger.now_us())
        for mailbox in self.ledger.state.endpoints.within(pattern):
            if mailbox.queue:
                self.handlers.wake(mailbox.subject)

        def end() -> None:
            stop()
            self.return_probes()

        return end

    def is_consumed(self, subject: str) -> bool:
        """Return whether a handler is subscribed to `subject` or an agent connected."""
        return self.consumers.is_attached(subject) or bool(self.subscriptions.handlers(subject))

    async def decide_forwarded(
        self, origin: int, messages: Sequence[Forwarded]
    ) -> list[ForwardOutcome]:
        """Decide about messages of another partition, durably."""
        if self.partition is None:
            raise InvalidInput("this relay has no partition: open it with one")
        here = self.partition
        if self.journal.full:
            raise PartitionUnavailable(here.number, self.journal.full_because)
        try:
            return await self.arrivals.decide_all(origin, messages, here.number, here.count)
        except RelayStopped as stopped:
            raise PartitionUnavailable(here.number, str(stopped)) from stopped

    def return_probes(self) -> None:
        """Return pending probes without a consumer, unless nothing can be recorded any more."""
        if self.journal.failure is None and not self.closed:
            self.transitions.return_probes(self.is_consumed)

    def restore_files(self) -> int:
        """Reconcile the mailbox files with the state; return how many were repaired."""
        if not self.uses_files:
            return 0
        intact = self.maildir.open()
        state, journal = self.ledger.state, self.data.journal
        repairs = list(
            reconcile(state, self.maildir, self.payloads, journal, check_content=not intact)
        )
        self.maildir.mark_verified()
        for repair in repairs:
            log.info("mailbox of %s: %s %s", repair.endpoint, repair.name, repair.text)
        return len(repairs)

    def sign_with(self, signer: Signer) -> None:
        """Sign the journal at intervals and when the relay is closed."""
        self.signing = JournalSigner(self.ledger, self.timers, signer)

    def keep(self, lock: DirectoryLock) -> None:
        """Look after the lock at every sweep."""
        self.sweeper.add(lambda now_us: lock.keep())
        self._checked.append(lock)

    def end_old_leases(self) -> None:
        """Return messages to their queues that were leased when the relay last stopped.

        Messages of handlers become dead letters: a handler may have run, and runs at most once.
        """
        for message in sorted(self.ledger.state.leased(), key=lambda one: -one.order):
            if message.via == "handler":
                reason = "interrupted: the relay stopped while its handler may have been running"
                self.transitions.fail(message, reason, via="restart", uncounted=True)
            else:
                self.transitions.release(message, "the relay restarted", uncounted=True)

    async def idle(self) -> None:
        """Wait until every event is durable, no handler is running and no segment being deleted."""
        await self.journal_tasks.quiet()
        self.journal.flush_now()
        await asyncio.sleep(0)  # tasks that waited for the commit run first
        await self.ledger.sync()
        while self.handlers.busy or self.journal.busy:
            await self.handlers.quiet()
            await self.ledger.sync()

    def _make_mirror(self) -> MailboxMirror:
        if not self.uses_files:
            return NoFiles()
        loop = asyncio.get_running_loop()

        def written(endpoint: str, ok: bool) -> None:
            loop.call_soon_threadsafe(self.breaker_feedback.on_file_written, endpoint, ok)

        return MaildirFiles(self.maildir, self.journal, self.payloads, written)

    def _make_sweeper(self) -> Sweeper:
        get = self.settings.get
        mail = MailTasks(
            self.ledger, self.transitions, self.leases, self.life, self.dead_letters, get
        )
        state = StateTasks(
            self.ledger,
            self.breaker_feedback,
            self.rejections,
            self.checkpoints,
            get,
            on_room=self.drop_ins.scan_all if self.uses_files else lambda: None,
        )
        self.journal_tasks = JournalTasks(self.ledger, self.checkpoints, self.data, get)
        journal = self.journal_tasks
        sweeper = Sweeper(self.ledger, self.timers, get)
        sweeper.add(mail.end_leases, mail.expire, mail.purge, state.forget)
        sweeper.add(lambda now_us: self.schedule.queue_due())
        sweeper.add(lambda now_us: self.subscriptions.save())
        sweeper.add(lambda now_us: self.endpoints.check_problem())
        sweeper.add(state.checkpoint, state.recover_space, journal.seal, journal.drop)
        if self.uses_files and self.settings.current.watch_files:
            sweeper.add(self.drop_in_search.begin)
        return sweeper

    def _make_file_watcher(self) -> FileWatcher:
        on_file = {
            self.data.config: self.settings.reload,
            self.data.rules: self.access.reload,
        }
        return FileWatcher(self.data, on_file, self.drop_ins if self.uses_files else None)
