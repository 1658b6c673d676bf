"""The path of one publish: load → decide → record → apply → show → notify.

Crash points, from top to bottom: before `record`, nothing has happened; before the commit,
nothing was confirmed; after the commit, recovery finds everything.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from waypost.policy.admission import (
    NO_PATTERNS_TEXT,
    SenderVerdict,
    admit_fan_out,
    admit_sender,
    may_use_patterns,
)
from waypost.policy.bounds import (
    names_visited_per_endpoint_max,
    turn_max_deliveries,
    turn_max_messages,
)
from waypost.policy.budgets import Budget
from waypost.policy.errors import AccessDenied, InvalidMessage
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY
from waypost.policy.settings import Settings
from waypost.policy.subjects import is_literal
from waypost.relay.config.access_file import AccessFile
from waypost.relay.delivery.deliver import Deliverer
from waypost.relay.delivery.drafts import (
    Draft,
    arrival_of,
    due_us,
    encode_draft,
    initial_budget,
    join_conversation,
)
from waypost.relay.delivery.endpoints import REPLY_PREFIX
from waypost.relay.delivery.rejections import (
    RejectionLog,
    rejected_result,
    storage_failed_result,
)
from waypost.relay.errors import MailboxUnavailable, RelayStopped
from waypost.relay.state.duplicates import duplicate_key
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Rejected
from waypost.wire.identifiers import UlidFactory
from waypost.wire.results import PublishResult, Rejection

Claims = dict[tuple[str, str], str]
"""Chosen ids that are about to be published: by mailbox and id, their sender."""

_PATTERN_WORK = 128
"""A publish to a pattern counts as this many deliveries: finding its endpoints takes time, too."""

_MAILBOX_WORK = 256
"""The creation of a mailbox counts as this many deliveries: its directories take about 1 ms."""


class Publishing:
    """Publishes drafts, synchronously: decisions become durable with the next commit."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Callable[[], Settings],
        access: AccessFile,
        delivery: Deliverer,
        rejections: RejectionLog,
        create_mailbox: Callable[[str], bool],
    ) -> None:
        """Take `create_mailbox(subject)`, which is called when a message that passed access rules
        and rate limit has no recipient, and returns whether it has one now. It may raise
        `MailboxUnavailable`."""
        self._ledger = ledger
        self._state = ledger.state
        self._settings = settings
        self._access = access
        self._delivery = delivery
        self._rejections = rejections
        self._make_id = UlidFactory(secrets.token_bytes).make
        self._create_mailbox = create_mailbox
        self._claims: list[Claims] = []
        self._created = 0
        """Mailboxes created for messages."""

    def publish(
        self, draft: Draft, content: bytes | None = None, budget: Budget | None = None
    ) -> PublishResult:
        """Decide about a draft, and record the decision.

        `content` and `budget` are given if the draft was encoded before.
        """
        settings = self._settings()
        if content is None:
            content = encode_draft(draft, settings)
        with self._ledger.one_time as now_us:
            if budget is None:
                budget = initial_budget(draft, settings, now_us // 1000)
            return self._publish(draft, content, budget, settings, now_us)

    def _publish(
        self, draft: Draft, content: bytes, budget: Budget, settings: Settings, now_us: int
    ) -> PublishResult:
        now_ms = now_us // 1000
        if draft.message_id is not None:
            first = self._first_result(draft.sender, draft.message_id, now_us)
            if first is not None:
                return first
        if self._ledger.journal.full:
            return rejected_result(Reason.STORAGE_FULL, self._ledger.journal.full_because)
        rate = admit_sender(draft.sender, self._state.windows, settings, now_ms, draft.network)
        if rate.reason is not None:
            return self._reject(draft, rate, budget, content, now_us)
        recipients = self._recipients(draft, settings, now_us)
        if recipients is None:
            detail = admit_fan_out(settings.max_fanout + 1, settings)
            rate = replace(rate, reason=Reason.FANOUT_EXCEEDED, detail=detail)
            return self._reject(draft, rate, budget, content, now_us)
        if draft.message_id is not None:
            self._reject_taken(draft.sender, draft.message_id, recipients)
            holders = sum(mailbox.holds(draft.message_id, now_ms) for mailbox in recipients)
            if holders:
                return PublishResult(message_id=draft.message_id, delivered_to=holders)
        event = arrival_of(draft, draft.message_id or self._make_id(now_ms), budget, rate, now_us)
        if not recipients:
            try:
                created = self._create_mailbox(draft.subject)
            except MailboxUnavailable as problem:
                reason, detail = Reason.MAILBOX_UNAVAILABLE, str(problem)
                rate = replace(rate, reason=reason, detail=detail)
                return self._reject(draft, rate, budget, content, now_us)
            if created:
                self._created += 1
                recipients = self._recipients(draft, settings, now_us) or ()
                self._reject_taken(draft.sender, event.id, recipients)
        if not recipients:
            event.parts = 0
            self._ledger.record(event)
            return PublishResult(message_id=event.id, delivered_to=0, budget_cut=event.budget_cut)
        if draft.delay is not None or draft.deliver_at is not None:
            event.due_us = due_us(draft, settings, now_us)
        return self._fan_out(event, content, recipients, settings)

    async def until_durable(self, result: PublishResult) -> PublishResult:
        """Return the result of a publish once it is durable, or that its storage failed."""
        if not result.message_id:
            await asyncio.sleep(0)  # a rejected flood must not starve other tasks
            return result
        waiting = self._ledger.journal.barrier()
        if waiting is not None:
            try:
                await waiting
            except RelayStopped as stopped:
                return storage_failed_result(stopped)
        return result

    async def publish_many(self, drafts: Sequence[Draft]) -> list[PublishResult]:
        """Publish many drafts with one wait; if one is invalid, raise before any decision.

        Other tasks get their turn in between.
        """
        settings, now_ms = self._settings(), self._ledger.now_us() // 1000
        contents: list[bytes] = []
        for draft in drafts:
            if len(contents) % turn_max_messages == turn_max_messages - 1:
                await asyncio.sleep(0)
            contents.append(encode_draft(draft, settings))
        budgets = [initial_budget(draft, settings, now_ms) for draft in drafts]
        claims = self._claim_ids(drafts, settings, now_ms)
        results: list[PublishResult] = []
        work = 0
        self._claims.append(claims)
        try:
            for draft, content, budget in zip(drafts, contents, budgets, strict=True):
                if work >= turn_max_deliveries:
                    await asyncio.sleep(0)
                    work = 0
                created = self._created
                try:
                    result = self.publish(draft, content, budget)
                except AccessDenied as denied:
                    result = rejected_result(Reason.ACCESS_DENIED, str(denied))
                results.append(result)
                work += 1 + _MAILBOX_WORK * (self._created - created)
                if not is_literal(draft.subject):
                    work += max(result.delivered_to + len(result.rejected), _PATTERN_WORK)
        finally:
            self._claims = [one for one in self._claims if one is not claims]
        try:
            await self._ledger.sync()
        except RelayStopped as stopped:
            return [storage_failed_result(stopped) for _ in results]
        return results

    def _recipients(
        self, draft: Draft, settings: Settings, now_us: int
    ) -> Sequence[Mailbox] | None:
        """Carry out step 4: return the mailboxes that the sender may publish to.

        None if the subject is a pattern that matches more than `max_fanout` of them.
        """
        subject, sender = draft.subject, draft.sender
        mailbox = self._state.mailboxes.get(subject)
        found: Sequence[Mailbox] | None = None
        if mailbox is not None:
            found = (mailbox,) if mailbox.registered else ()
        elif is_literal(subject):
            found = ()
        else:
            if not may_use_patterns(sender, settings):
                raise self._denied(draft, now_us, NO_PATTERNS_TEXT)
            found = self._match_pattern(subject, settings.max_fanout)
        if found is None or not self._access.restricts or sender == RELAY:
            return found  # access rules do not apply to the relay itself
        allowed = [to for to in found if self._access.check_access(sender, to.subject).allowed]
        if not allowed and (found or not self._access.check_access(sender, subject).allowed):
            raise self._denied(draft, now_us)
        if not self._may_name_reply_address(draft):
            text = f"access rules do not let {sender} name {draft.reply_to} as the reply address"
            raise self._denied(draft, now_us, text)
        return allowed

    def _may_name_reply_address(self, draft: Draft) -> bool:
        """Return whether the sender may publish to its reply address: the recipient will."""
        sender, reply_to = draft.sender, draft.reply_to
        if reply_to is None or reply_to == sender or reply_to.startswith(REPLY_PREFIX):
            return True
        return self._access.check_access(sender, reply_to).allowed

    def _denied(self, draft: Draft, now_us: int, text: str = "") -> AccessDenied:
        """Journal that a publish is denied; return the error."""
        message_id, sender, subject = draft.message_id or "", draft.sender, draft.subject
        self._rejections.record_denied(message_id, sender, subject, now_us)
        return AccessDenied(sender, subject, text)

    def _match(self, subject: str) -> Sequence[Mailbox] | None:
        """Return the mailbox of a registered endpoint, if there is one; None for a pattern."""
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is not None:
            return (mailbox,) if mailbox.registered else ()
        return () if is_literal(subject) else None

    def _match_pattern(self, pattern: str, limit: int) -> list[Mailbox] | None:
        """Return the endpoints that match a pattern; None if they are more than `limit`, or so
        many names have to be tried.

        Reply subjects match only a pattern with their prefix: a broadcast is not a reply.
        """

        def accept(mailbox: Mailbox) -> bool:
            return replies or not mailbox.subject.startswith(REPLY_PREFIX)

        endpoints, replies = self._state.endpoints, pattern.startswith(REPLY_PREFIX)
        if limit:
            visits_max = limit * names_visited_per_endpoint_max
            return endpoints.within_bounds(pattern, accept, limit, visits_max)
        return [mailbox for mailbox in endpoints.within(pattern) if accept(mailbox)]

    def _first_result(self, sender: str, message_id: str, now_us: int) -> PublishResult | None:
        """Carry out step 2: return the first result of this id, or None if it may be published.

        An id that was stored nowhere may be retried. Each sender has its own ids.
        """
        first = self._state.duplicates.get(duplicate_key(sender, message_id))
        if first is None:
            return None
        window_us = self._settings().housekeeping.duplicate_window_ms * 1000
        if first.at_us < now_us - window_us:
            return None
        result = first.result()
        return result if result.delivered_to else None

    def _reject_taken(self, sender: str, message_id: str, recipients: Sequence[Mailbox]) -> None:
        """Raise `InvalidMessage` if another sender's message has this id in a mailbox, or will."""
        for mailbox in recipients:
            key = (mailbox.subject, message_id)
            if mailbox.holds_from_other_sender(message_id, sender) or any(
                claims.get(key, sender) != sender for claims in self._claims
            ):
                raise InvalidMessage(f"message id {message_id} is taken: choose another")

    def _claim_ids(self, drafts: Sequence[Draft], settings: Settings, now_ms: int) -> Claims:
        """Return the chosen ids of `drafts`, or raise `InvalidMessage` if one is taken.

        Patterns that the rate limit rejects are not looked up.
        """
        claims: Claims = {}
        left: dict[str, int] = {}
        for draft in drafts:
            sender, message_id = draft.sender, draft.message_id
            if message_id is None:
                continue
            mailboxes = self._match(draft.subject)
            if mailboxes is None:
                if sender not in left:
                    windows = self._state.windows
                    rate = admit_sender(sender, windows, settings, now_ms, draft.network)
                    left[sender] = rate.limit - rate.count if rate.limit else len(drafts)
                mailboxes = self._match_within_rate(draft, left, settings, now_ms)
            self._reject_taken(sender, message_id, mailboxes)
            for mailbox in mailboxes:
                if claims.setdefault((mailbox.subject, message_id), sender) != sender:
                    raise InvalidMessage(f"message id {message_id} is taken: choose another")
        return claims

    def _match_within_rate(
        self, draft: Draft, left: dict[str, int], settings: Settings, now_ms: int
    ) -> Sequence[Mailbox]:
        """Return the mailboxes of a publish to a pattern; none if it will be rejected whole.

        `left` is how many publishes of each sender the rate limit lets pass; those that will
        count are subtracted.
        """
        sender, message_id = draft.sender, draft.message_id or ""
        if left[sender] <= 0 or not may_use_patterns(sender, settings):
            return ()
        found = self._match_pattern(draft.subject, settings.max_fanout)
        if found is None:
            left[sender] -= 1
            return ()
        reaches = not self._access.restricts or any(
            self._access.check_access(sender, to.subject).allowed for to in found
        )
        if reaches and not any(mailbox.holds(message_id, now_ms) for mailbox in found):
            left[sender] -= 1
        return found

    def _reject(
        self, draft: Draft, rate: SenderVerdict, budget: Budget, content: bytes, now_us: int
    ) -> PublishResult:
        """Record the rejection of a whole publish; its size is that of a delivery to its
        subject."""
        assert rate.reason is not None
        event = Rejected(
            at_us=now_us,
            id=draft.message_id or "",
            sender=draft.sender,
            subject=draft.subject,
            network=draft.network,
            budget=budget,
            rate_count=rate.count,
            rate_limit=rate.limit,
            due_us=due_us(draft, self._settings(), now_us),
            reason=rate.reason,
            detail=rate.detail,
            retry_after_ms=rate.retry_after_ms,
        )
        join_conversation(event, draft)
        event.size = stored_size(event, budget, draft.subject, len(content))
        self._rejections.record(event)
        return rejected_result(rate.reason, rate.detail, rate.retry_after_ms)

    def _fan_out(
        self,
        event: Accepted,
        content: bytes,
        recipients: Sequence[Mailbox],
        settings: Settings,
    ) -> PublishResult:
        """Carry out step 5 for each mailbox; each has an event of its own."""
        result = PublishResult(message_id=event.id, delivered_to=0, budget_cut=event.budget_cut)
        shows_pressure, parts = settings.backpressure.enabled, len(recipients)
        for part, mailbox in enumerate(recipients):
            own = event if parts == 1 else replace(event, part=part, parts=parts)
            verdict = self._delivery.deliver(own, content, mailbox, settings)
            if shows_pressure:
                result.mailbox_pressure[mailbox.hash] = verdict.pressure
            if verdict.reason is None:
                result.delivered_to += 1
                continue
            result.rejected.append(Rejection(mailbox.hash, verdict.reason, verdict.detail))
            result.retry_after_ms = max(result.retry_after_ms, verdict.retry_after_ms)
        return result
