"""Housekeeping: forgets what is over, so that a relay can run for ever.

Expired mail, leases past their deadline, idle senders and breakers, counted refusals, dead
letters and duplicate ids past their retention, journal segments nobody needs, and the ballast
after a full disk.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from waypost.policy.settings import Settings
from waypost.relay.clock import Cancel, Timers
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.dead_letters import DeadLetters
from waypost.relay.delivery.leases import Leases
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayStopped
from waypost.relay.journal.segments import bodies_path, last_commit, list_segments
from waypost.relay.state.checkpoints import Checkpoints
from waypost.relay.state.index import all_messages
from waypost.relay.state.ledger import Ledger
from waypost.wire.events import EndpointChanged

log = logging.getLogger("waypost.relay")


class Sweeper:
    """Sweeps every `sweep_interval_ms` of the relay's clock."""

    def __init__(self, ledger: Ledger, timers: Timers, settings: Callable[[], Settings]) -> None:
        self._ledger = ledger
        self._timers = timers
        self._settings = settings
        self._duties: list[Callable[[int], object]] = []
        self._cancel: Cancel | None = None

    def add(self, duty: Callable[[int], object]) -> None:
        """Call `duty` with the time (µs) at every sweep."""
        self._duties.append(duty)

    def start(self) -> None:
        """Set the timer for the next sweep, in place of one already set."""
        self.stop()
        wait_us = self._settings().housekeeping.sweep_interval_ms * 1000
        self._cancel = self._timers.call_at(self._ledger.now_us() + wait_us, self._tick)

    def stop(self) -> None:
        """No more sweeps."""
        if self._cancel is not None:
            self._cancel()

    def sweep(self) -> None:
        """Do all duties now; one that the disk will not let be done is left for the next time."""
        now_us = self._ledger.now_us()
        for duty in self._duties:
            try:
                duty(now_us)
            except OSError as problem:
                log.warning("sweeping: %s", problem)

    def _tick(self) -> None:
        try:
            self.sweep()
        except RelayStopped as problem:
            log.error("sweeping stopped: %s", problem)
            return
        self.start()


class MailTasks:
    """What sweeping means for messages."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        leases: Leases,
        dead_letters: DeadLetters,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._leases = leases
        self._dead_letters = dead_letters
        self._settings = settings

    def expire(self, now_us: int) -> None:
        """Expire mail, with a count per recipient in the log."""
        counts: Counter[str] = Counter()
        for mailbox in list(self._ledger.state.mailboxes.values()):
            if now_us // 1000 > mailbox.earliest_ttl:
                counts[mailbox.subject] += self._transitions.expire_due(mailbox)
        for subject, count in counts.items():
            if count:
                log.info("expired %d messages for %s", count, subject)

    def take_back(self, now_us: int) -> None:
        """Take back leases past their deadline."""
        self._leases.time_out()

    def purge(self, now_us: int) -> None:
        """Throw away dead letters past their retention."""
        kept_us = self._settings().housekeeping.dead_letter_retention_ms * 1000
        self._dead_letters.purge(now_us - kept_us, None, "retention is over")


class StateTasks:
    """What sweeping means for senders, breakers, refusals and duplicate ids."""

    def __init__(
        self,
        ledger: Ledger,
        breaker_feedback: BreakerFeedback,
        rejections: RejectionLog,
        checkpoints: Checkpoints,
        settings: Callable[[], Settings],
        on_room: Callable[[], object],
    ) -> None:
        """`on_room` is called when a full disk has room again."""
        self._ledger = ledger
        self._breaker_feedback = breaker_feedback
        self._rejections = rejections
        self._checkpoints = checkpoints
        self._settings = settings
        self._on_room = on_room

    def forget(self, now_us: int) -> None:
        """Forget idle senders and breakers; write counted refusals of minutes that are over."""
        settings = self._settings()
        window_ms = settings.rate_limit.window_secs * 1000
        self._ledger.state.windows.sweep(now_us // 1000, window_ms)
        idle_ms = settings.housekeeping.breaker_idle_ms
        for move in self._breaker_feedback.breakers.sweep(now_us // 1000, idle_ms):
            self._breaker_feedback.record_transition(move, now_us)
        self._rejections.sweep(now_us)

    def checkpoint(self, now_us: int) -> None:
        """Bring the index up to date and drop duplicate ids past their window."""
        kept_us = self._settings().housekeeping.duplicate_window_ms * 1000
        self._checkpoints.forget_duplicates(now_us - kept_us)
        self._checkpoints.write_if_idle()

    def recover_space(self, now_us: int) -> None:
        """After a full disk, see whether there is room again."""
        if self._ledger.journal.full and self._ledger.journal.restore_ballast():
            log.warning("there is room on the disk again: publishes are taken")
            self._on_room()


class JournalTasks:
    """What sweeping means for the journal's files."""

    def __init__(
        self,
        ledger: Ledger,
        checkpoints: Checkpoints,
        directory: Path,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._directory = directory
        self._settings = settings
        self._oldest_us = 0
        """When the oldest sealed segment ended; 0 when that has to be looked up."""

    def seal(self, now_us: int) -> None:
        """Seal a segment that has been open for too long."""
        age_us = self._ledger.journal.segment_age_us(now_us)
        if age_us >= self._settings().housekeeping.segment_max_age_ms * 1000:
            self._ledger.journal.seal()

    def drop(self, now_us: int) -> None:
        """Delete sealed segments past their retention that neither messages nor index need."""
        over_us = now_us - self._settings().housekeeping.journal_retention_ms * 1000
        if self._oldest_us >= over_us:
            return
        segments = list(list_segments(self._directory).items())
        sealed = [path for _, path in segments if path.suffix == ".jsonl"]
        if not sealed:
            return
        self._oldest_us = _ended_us(sealed[0])
        if self._oldest_us >= over_us:
            return
        unneeded = self._unneeded(segments)
        over = [(path, following) for path, following in unneeded if _ended_us(path) < over_us]
        if not over:
            return
        self._oldest_us = 0
        delete = partial(_delete, [path for path, _ in over])
        if self._register_again(before_seq=over[-1][1], now_us=now_us):
            self._ledger.journal.after_commit(delete)
        else:
            delete()

    def _register_again(self, before_seq: int, now_us: int) -> bool:
        """A fold of what is left must know every endpoint: write down the old ones again."""
        old = [m for m in self._ledger.state.registered() if m.registered_seq < before_seq]
        for mailbox in old:
            self._ledger.record(
                EndpointChanged(
                    at_us=now_us,
                    endpoint=mailbox.subject,
                    action="registered",
                    since_us=mailbox.since_us,
                )
            )
        return bool(old)

    def _unneeded(self, segments: list[tuple[int, Path]]) -> list[tuple[Path, int]]:
        """Those sealed segments that only retention keeps, each with the first seq after it.

        Never the last one: it tells how far the numbers have come.
        """
        needed = min(
            (message.location.segment for message in all_messages(self._ledger.state)),
            default=self._ledger.journal.segment,
        )
        following = [first for first, _ in segments[1:]]
        return [
            (path, after)
            for (first, path), after in zip(segments[:-1], following, strict=True)
            if path.suffix == ".jsonl"
            and first < needed
            and after - 1 <= self._checkpoints.written_seq
        ]


def _ended_us(path: Path) -> int:
    commit = last_commit(path)
    return commit.at_us if commit is not None else int(path.stat().st_mtime * 1_000_000)


def _delete(segments: list[Path]) -> None:
    for path in segments:
        path.unlink(missing_ok=True)
        bodies_path(path.parent, int(path.stem)).unlink(missing_ok=True)
        log.info("journal: segment %s is past its retention", path.name)
