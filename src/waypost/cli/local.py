"""The verbs on a data directory: this process looks at it, or owns it for a moment.

Looking takes no lock and changes nothing, so it works while a relay runs. Owning fails with
`DataDirInUse` then. `served` answers the same calls from afar.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from waypost.cli import rules_file
from waypost.cli.facts import ConfigCheck, EndpointFacts, Inbox, Redriven, Sent, Stats
from waypost.cli.overview import check_config, effective_settings, save_config, stats_of
from waypost.cli.results import sent_of
from waypost.policy.access import AccessRule
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_literal, validate_subject
from waypost.relay.clock import system_clock
from waypost.relay.data_dir import DataDir
from waypost.relay.delivery.dead_letters import (
    DeadLetter,
    DeadLetterGroup,
    find_dead,
    group_dead_letters,
    list_dead_letters,
)
from waypost.relay.delivery.drafts import Draft
from waypost.relay.errors import DataDirUnusable, RelayError, UnknownEndpoint
from waypost.relay.inspection.snapshot import Look, look, starting_settings, steadily
from waypost.relay.journal.history import MessageHistory, read_history
from waypost.relay.relay import Relay
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.verify.findings import VerifyReport
from waypost.relay.verify.journal_check import OnSegment
from waypost.relay.verify.verify import rebuild_index, verify
from waypost.wire.envelopes import instant
from waypost.wire.http_bodies import RuleList
from waypost.wire.identifiers import validate_message_id
from waypost.wire.outgoing import OutgoingMessage

T = TypeVar("T")


class Directory:
    """A relay's data directory, from the command line."""

    def __init__(self, root: Path) -> None:
        self.data = DataDir(root)

    def require(self) -> None:
        """Raise `DataDirUnusable` unless a relay has lived here."""
        try:
            self.data.require()
        except DataDirUnusable as problem:
            raise DataDirUnusable(
                f"{problem}; name the right one with --data-dir or WAYPOST_DATA_DIR"
            ) from None

    # Looking

    def look(self) -> Look:
        """Everything at one instant; `DataDirUnusable` where no relay has lived."""
        self.require()
        return look(self.data)

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> Inbox:
        """What waits in a mailbox, oldest first; nothing is taken out."""
        validate_subject(subject)
        self.require()
        return steadily(lambda: self._inbox(subject, limit, max_size_bytes))

    def endpoints(self) -> list[EndpointFacts]:
        """Every registered endpoint, in order of registration."""
        seen = self.look()
        files = seen.settings.storage == "maildir"
        return [
            EndpointFacts(
                subject=mailbox.subject,
                hash=mailbox.hash,
                maildir_path=str(self.data.mailboxes / mailbox.hash) if files else None,
                registered_at=instant(mailbox.since_us),
                pending=mailbox.occupancy.depth - mailbox.leased_count,
                leased=mailbox.leased_count,
                dead=len(mailbox.dead),
            )
            for mailbox in seen.state.registered()
        ]

    def stats(self) -> Stats:
        """Numbers and problems, and what happened lately."""
        return stats_of(self.look())

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Whether a relay would take `file`, or else the directory's own."""
        return check_config(self.data.config if file is None else file)

    def config(self) -> tuple[dict[str, Any], str]:
        """The settings a relay would start with, and why the directory's file is ignored."""
        self.require()
        return effective_settings(self.data)

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the directory's `config.json`, if it is valid; a relay takes it over."""
        self.require()
        return save_config(self.data, file)

    def rules(self) -> RuleList:
        """Access rules in the order in which they are tried."""
        self.require()
        return rules_file.list_rules(self.data)

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, in place of one with the same patterns."""
        self.require()
        return rules_file.add_rule(self.data, rule)

    def remove_rule(self, from_: str, to: str) -> RuleList:
        """Remove a rule; `RelayError` if there is no such rule."""
        self.require()
        return rules_file.remove_rule(self.data, from_, to)

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """Dead letters of one endpoint or all, the oldest failure first, and their number."""
        bodies = PayloadStore(self.data.journal)
        try:
            found = list_dead_letters(self._look_for(subject).state, bodies, subject)
            return found, len(found)
        finally:
            bodies.close()

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """The same by endpoint and reason, the largest group first."""
        return group_dead_letters(self._look_for(subject).state, subject)

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """How many dead letters a purge would throw away."""
        age_us = older_than // timedelta(microseconds=1) if older_than is not None else 0
        before_us = system_clock() - age_us
        dead = find_dead(self._look_for(subject).state, subject)
        return sum(older_than is None or one.failed_at_us < before_us for one in dead)

    def explain(self, message_id: str) -> MessageHistory:
        """Everything the journal knows about a message; `RelayError` if that is nothing."""
        validate_message_id(message_id)
        self.require()
        story = steadily(lambda: read_history(self.data.journal, message_id))
        if not story.steps:
            raise RelayError(
                f"the journal of {self.data.root} does not know a message {message_id}: it may be"
                " past its retention, or of another relay (--data-dir); rate-limited publishes"
                " get no id"
            )
        return story

    # Owning

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None = None,
    ) -> Sent:
        """Publish one message, after giving its subject a mailbox if that is wanted."""
        if sender is None:
            raise InvalidInput("say who sends it, with --sender")
        if wait_s is not None:
            raise InvalidInput(
                "--wait needs a served relay, for nobody reads while this one is closed: give --url"
            )
        if register:
            validate_subject(message.subject)
        subject = message.subject
        draft = Draft(
            subject,
            message.payload,
            sender=sender,
            reply_to=message.reply_to,
            message_id=message.message_id,
        )

        async def act(relay: Relay) -> Sent:
            if register:
                relay.register_endpoint(subject)
            [result] = await relay.publish_many([draft])
            return sent_of(subject, result, [subject] if is_literal(subject) else _subjects(relay))

        return self._own(act)

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[Inbox], None],
    ) -> None:
        """Lease messages, hand them to `deliver`, and acknowledge them once it has returned.

        If it raises, or this process dies in it, they wait again for the next owner.
        """
        validate_subject(subject)
        self.require()

        async def act(relay: Relay) -> None:
            if not relay.inspect().has_mailbox(subject):
                raise _unknown(subject)
            got = await relay.lease(subject, limit, max_size_bytes)
            [rest] = [one for one in relay.metrics().endpoints if one.subject == subject]
            others = rest.leased - len(got)
            deliver(Inbox(subject, got, rest.pending, others, acknowledged=True))
            await relay.ack(subject, [envelope.id for envelope in got])

        self._own(act)

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> Redriven:
        """Put dead letters back into their mailboxes: those of `ids`, or all."""
        if subject is not None:
            validate_subject(subject)
        self.require()

        async def act(relay: Relay) -> Redriven:
            groups = await relay.dead_letter_groups(subject)
            wanted = list(ids) if ids is not None else [i for group in groups for i in group.ids]
            count = await relay.redrive(wanted, subject)
            left = {one for group in await relay.dead_letter_groups(subject) for one in group.ids}
            known = {one for group in groups for one in group.ids}
            stayed = [one for one in wanted if one not in known or one in left]
            return Redriven(count, list(dict.fromkeys(stayed)))

        return self._own(act)

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Throw dead letters away; gives how many."""
        self.require()
        return self._own(lambda relay: relay.purge_dead_letters(older_than, subject))

    def remember_pairs(self, pairs: Iterable[tuple[str, str, int]]) -> int:
        """Take over who wrote to whom and when (ms); gives how many were news."""
        return self._own(lambda relay: relay.remember_pairs(pairs))

    def verify(self, *, repair: bool, on_segment: OnSegment) -> VerifyReport:
        """Check journal, index and mailboxes against each other; owns only to repair."""
        self.require()
        return verify(self.data, repair=repair, on_segment=on_segment)

    def rebuild(self) -> tuple[int, bool]:
        """Write the index anew; gives its messages, and whether the journal has lost events."""
        self.require()
        return rebuild_index(self.data)

    def _own(self, act: Callable[[Relay], Awaitable[T]]) -> T:
        async def run() -> T:
            # Mailboxes stay files or no files, whichever this directory has.
            async with Relay(self.data.root, settings=starting_settings(self.data)) as relay:
                return await act(relay)

        return asyncio.run(run())

    def _look_for(self, subject: str | None) -> Look:
        if subject is not None:
            validate_subject(subject)
        return self.look()

    def _inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> Inbox:
        seen = look(self.data)
        mailbox = seen.state.mailboxes.get(subject)
        if mailbox is None:
            raise _unknown(subject)
        bodies = PayloadStore(self.data.journal)
        now_ms = system_clock() // 1000
        waiting = [message for message in mailbox.pending() if message.ttl >= now_ms]
        small = [m for m in waiting if max_size_bytes is None or m.size <= max_size_bytes]
        envelopes, unreadable = [], []
        for message in small[:limit]:
            try:
                envelopes.append(bodies.decoded_envelope(message))
            except RelayError as problem:
                unreadable.append(f"{message.id}: {problem}")
        bodies.close()
        return Inbox(subject, envelopes, len(waiting), mailbox.leased_count, unreadable)


def _unknown(subject: str) -> RelayError:
    return RelayError(f"{UnknownEndpoint(subject)}; 'waypost endpoints' lists those that are")


def _subjects(relay: Relay) -> list[str]:
    return [endpoint.subject for endpoint in relay.list_endpoints()]
