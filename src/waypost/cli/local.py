"""The operations of commands on a data directory.

Reading takes a snapshot: no lock, no changes, so it works while a relay runs. Everything else opens
the relay in this process for a moment, and fails with `DataDirInUse` while another one runs.
`remote.relay` implements the same operations on a served relay.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from waypost.cli import config_files
from waypost.cli.results import (
    ConfigCheck,
    EndpointStatus,
    InboxContents,
    RedriveResult,
    SendReport,
    StatsResult,
    send_report,
)
from waypost.policy.access import AccessRule
from waypost.policy.breakers import OPEN
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import (
    is_literal,
    matches_pattern,
    validate_pattern,
    validate_subject,
)
from waypost.relay.clock import system_clock
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import DataDirUnusable, RelayError, UnknownEndpoint
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.history import MessageHistory, read_history
from waypost.relay.inspection.snapshot import (
    JournalTail,
    RecentEvents,
    Snapshot,
    count_recent_events,
    retry_while_changing,
    starting_settings,
    take_snapshot,
)
from waypost.relay.inspection.threads import read_thread
from waypost.relay.relay import Draft, Relay
from waypost.relay.verify.findings import VerifyReport
from waypost.relay.verify.journal_check import OnSegment
from waypost.relay.verify.salvage import SalvageReport, salvage
from waypost.relay.verify.verify import rebuild_index, verify
from waypost.wire.breaker_bodies import BreakerInfo
from waypost.wire.envelopes import instant
from waypost.wire.events import AnyEvent
from waypost.wire.history_bodies import Thread
from waypost.wire.http_bodies import RuleList
from waypost.wire.identifiers import validate_message_id, validate_thread
from waypost.wire.outgoing import OutgoingMessage

T = TypeVar("T")

COUNTED_MAX_BYTES = 64 * 1024 * 1024
"""How much of the newest journal `stats` counts: enough for an overview, and fast."""


class LocalRelay:
    """A relay in a data directory on this machine."""

    def __init__(self, root: Path) -> None:
        self.data = DataDir(root)

    def require(self) -> None:
        """Raise `DataDirUnusable` unless a relay has used this directory."""
        try:
            self.data.require()
        except DataDirUnusable as problem:
            raise DataDirUnusable(
                f"{problem}; name the right one with --data-dir or WAYPOST_DATA_DIR"
            ) from None

    # Reading: a snapshot of the files

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> InboxContents:
        """Return the pending messages of a mailbox, oldest first, without removing them."""
        validate_subject(subject)
        self.require()
        return retry_while_changing(lambda: self._inbox(subject, limit, max_size_bytes))

    def endpoints(self) -> list[EndpointStatus]:
        """Return every registered endpoint, in order of registration."""
        seen = self.snapshot()
        files = seen.settings.storage == "maildir"
        return [
            EndpointStatus(
                subject=mailbox.subject,
                hash=mailbox.hash,
                maildir_path=str(self.data.mailboxes / mailbox.hash) if files else None,
                registered_at=instant(mailbox.since_us),
                pending=mailbox.pending_count,
                leased=mailbox.leased_count,
                dead=len(mailbox.dead),
                oldest_us=mailbox.oldest_us,
            )
            for mailbox in seen.state.registered()
        ]

    def stats(self) -> StatsResult:
        """Return statistics, problems, and counts of recent events."""
        return _stats(self.snapshot())

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Check whether a relay would accept `file`, or else the directory's own."""
        return config_files.check_config(self.data.config if file is None else file)

    def config(self) -> tuple[dict[str, Any], str]:
        """Return the settings a relay would start with, and why the directory's file is ignored."""
        self.require()
        return config_files.effective_config(self.data)

    def rules(self) -> RuleList:
        """Return the access rules in the order in which they are applied."""
        self.require()
        return config_files.list_rules(self.data)

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """Return dead letters, the oldest failure first, and their number."""
        found = self.snapshot(subject).dead_letters(subject)
        return found, len(found)

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""
        return self.snapshot(subject).dead_letter_groups(subject)

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """Return how many dead letters a purge would delete."""
        before_us = None
        if older_than is not None:
            before_us = system_clock() - older_than // timedelta(microseconds=1)
        return self.snapshot(subject).count_dead_letters(subject, before_us)

    def explain(self, message_id: str) -> MessageHistory:
        """Return the history of a message. Raises `RelayError` if the journal has none."""
        validate_message_id(message_id)
        self.require()
        history = retry_while_changing(lambda: read_history(self.data.journal, message_id))
        if not history.steps:
            raise RelayError(
                f"no message {message_id} in the journal of {self.data.root}: it may be past its"
                " retention, or belong to another relay (--data-dir); rate-limited publishes"
                " get no id"
            )
        return history

    def thread(self, thread: str) -> Thread:
        """Return the messages of a thread. Raises `RelayError` if the journal has none."""
        validate_thread(thread)
        self.require()
        found = retry_while_changing(lambda: read_thread(self.data.journal, thread))
        if not found.messages:
            raise RelayError(
                f"no thread {thread} in the journal of {self.data.root}: it may be past its"
                " retention, or belong to another relay (--data-dir)"
            )
        return found

    # Changing files: works while a relay runs

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the directory's `config.json`, if it is valid; a running relay reloads it."""
        self.require()
        return config_files.save_config(self.data, file)

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, replacing one with the same patterns, key and priority."""
        self.require()
        return config_files.add_rule(self.data, rule)

    def remove_rule(
        self, from_: str, to: str, from_key: str | None, priority: int | None
    ) -> RuleList:
        """Remove one rule of a pair, or all. Raises `RelayError` if there is no such rule."""
        self.require()
        return config_files.remove_rule(self.data, from_, to, from_key, priority)

    # Opening the relay: fails while another process has it

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None = None,
    ) -> SendReport:
        """Publish one message; with `register`, register its subject as an endpoint first."""
        if sender is None:
            raise InvalidInput("the sender is missing: give --sender SUBJECT")
        if wait_s is not None:
            raise InvalidInput(
                "--wait needs a served relay, whose recipients are connected: give --url URL"
            )
        if register:
            validate_subject(message.subject)
        subject = message.subject
        draft = Draft(
            subject,
            message.payload,
            sender=sender,
            reply_to=message.reply_to,
            budget=message.budget,
            message_id=message.message_id,
            thread=message.thread,
            delay=message.delay,
            deliver_at=message.deliver_at,
        )

        async def act(relay: Relay) -> SendReport:
            if register:
                relay.register_endpoint(subject)
            [result] = await relay.publish_many([draft])
            names = [subject] if is_literal(subject) else _subjects(relay)
            return send_report(subject, result, names)

        return self.with_relay(act)

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[InboxContents], None],
    ) -> None:
        """Lease messages, pass them to `deliver`, and acknowledge them once it has returned.

        If it raises, or this process dies meanwhile, they are pending again for the next relay.
        """
        validate_subject(subject)
        self.require()

        async def act(relay: Relay) -> None:
            if not relay.inspect().has_mailbox(subject):
                raise _unknown(subject)
            got = await relay.lease(subject, limit, max_size_bytes)
            [counts] = [one for one in relay.metrics().endpoints if one.subject == subject]
            leased = counts.leased - len(got)
            deliver(InboxContents(subject, got, counts.pending, leased, acknowledged=True))
            await relay.ack(subject, [envelope.id for envelope in got])

        self.with_relay(act)

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> RedriveResult:
        """Move dead letters back into their mailboxes: those of `ids`, or all."""
        if subject is not None:
            validate_subject(subject)
        self.require()

        async def act(relay: Relay) -> RedriveResult:
            groups = await relay.dead_letter_groups(subject)
            wanted = list(ids) if ids is not None else [i for group in groups for i in group.ids]
            count = await relay.redrive(wanted, subject)
            left = {one for group in await relay.dead_letter_groups(subject) for one in group.ids}
            known = {one for group in groups for one in group.ids}
            not_redriven = [one for one in wanted if one not in known or one in left]
            return RedriveResult(count, list(dict.fromkeys(not_redriven)))

        return self.with_relay(act)

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Delete dead letters; return how many."""
        self.require()
        return self.with_relay(lambda relay: relay.purge_dead_letters(older_than, subject))

    def remember_pairs(self, pairs: Iterable[tuple[str, str, int]]) -> int:
        """Import sender-recipient pairs with their time (ms); return how many were new."""
        return self.with_relay(lambda relay: relay.remember_pairs(pairs))

    def follow(self, agent: str | None, every_s: float) -> Iterator[AnyEvent]:
        """Yield events when they are on disk, endlessly; with `agent`, those of matching names."""
        if agent is not None:
            validate_pattern(agent)
        self.require()
        following = JournalTail(self.data)
        while True:
            for event in following.read():
                if agent is None or _is_about(event, agent):
                    yield event
            time.sleep(every_s)

    def verify(self, *, repair: bool, on_segment: OnSegment) -> VerifyReport:
        """Check journal, index and mailboxes against each other; locks only to repair."""
        self.require()
        return verify(self.data, repair=repair, on_segment=on_segment)

    def rebuild(self) -> tuple[int, bool]:
        """Rebuild the index; return its messages, and whether the journal has lost events."""
        self.require()
        return rebuild_index(self.data)

    def salvage(self) -> SalvageReport:
        """Make a journal from the mailbox files of a directory that has lost its own."""
        return salvage(self.data)

    def with_relay(self, act: Callable[[Relay], Awaitable[T]]) -> T:
        """Open the relay of the directory, and return the result of `act` on it."""

        async def run() -> T:
            # Keep the directory's storage: a mailbox stays a Maildir, or stays without files.
            async with Relay(self.data.root, settings=starting_settings(self.data)) as relay:
                return await act(relay)

        return asyncio.run(run())

    def snapshot(self, subject: str | None = None) -> Snapshot:
        """Take a snapshot, after checking the `subject` that the command is about, if any."""
        if subject is not None:
            validate_subject(subject)
        self.require()
        return take_snapshot(self.data)

    def _inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> InboxContents:
        try:
            found = take_snapshot(self.data).read_mailbox(
                subject, limit, max_size_bytes, system_clock() // 1000
            )
        except UnknownEndpoint:
            raise _unknown(subject) from None
        messages = [one.envelope for one in found.messages]
        return InboxContents(subject, messages, found.pending, found.leased, found.unreadable)


def _stats(seen: Snapshot) -> StatsResult:
    endpoints = seen.mailbox_stats()
    by_status = {
        "pending": sum(one.pending for one in endpoints),
        "scheduled": sum(one.scheduled for one in endpoints),
        "leased": sum(one.leased for one in endpoints),
        "dead": sum(one.dead for one in endpoints),
    }
    counted = count_recent_events(seen.data, COUNTED_MAX_BYTES)
    breakers = journaled_breakers(counted, seen.owner)
    rejections = counted.senders.recent(system_clock())
    return StatsResult(
        url="",
        data_dir=str(seen.data.root),
        in_use_by=seen.owner,
        seq=seen.state.seq,
        last_event_at=instant(seen.state.at_us) if seen.state.seq else None,
        storage=seen.settings.storage,
        durability=seen.settings.durability,
        total_messages=sum(by_status.values()),
        by_status=by_status,
        endpoints=endpoints,
        counted_since=instant(counted.since_us) if counted.since_us else None,
        events=dict(counted.events),
        rejected=dict(counted.rejected),
        connected=[],
        stuck=[],
        breakers=breakers,
        problems=seen.problems,
        findings=seen.findings(endpoints, breakers, rejections, system_clock()),
        rejections=rejections,
    )


def journaled_breakers(counted: RecentEvents, owner: str) -> dict[str, BreakerInfo]:
    """Return the breakers of the relay `owner` that are not closed; without one, all are."""
    if not owner:
        return {}
    return {
        name: BreakerInfo(
            state=move.after, opened_at=move.at_us // 1000 if move.after is OPEN else None
        )
        for name, move in counted.breakers.items()
    }


def _unknown(subject: str) -> RelayError:
    return RelayError(f"{UnknownEndpoint(subject)}; 'waypost endpoints' lists all endpoints")


def _is_about(event: AnyEvent, pattern: str) -> bool:
    names = (getattr(event, name, "") for name in ("sender", "endpoint", "subject"))
    return any(is_literal(name) and matches_pattern(name, pattern) for name in names if name)


def _subjects(relay: Relay) -> list[str]:
    return [endpoint.subject for endpoint in relay.list_endpoints()]
