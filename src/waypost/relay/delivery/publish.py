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
from waypost.policy.bounds import turn_max_deliveries, turn_max_messages
from waypost.policy.budgets import Budget
from waypost.policy.errors import AccessDenied, InvalidMessage
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY
from waypost.policy.settings import Settings
from waypost.policy.subjects import is_literal
from waypost.relay.config.access_file import AccessFile
from waypost.relay.delivery.arrivals import Arrivals
from waypost.relay.delivery.drafts import (
    Draft,
    arrival_of,
    due_us,
    encode_draft,
    initial_budget,
    join_conversation,
)
from waypost.relay.delivery.endpoints import REPLY_PREFIX
from waypost.relay.delivery.forwarding import Forwarding
from waypost.relay.delivery.recipients import Recipients
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
from waypost.wire.events import Rejected
from waypost.wire.identifiers import UlidFactory
from waypost.wire.results import PublishResult

Claims = dict[tuple[str, str], str]
"""Chosen ids that are about to be published: by mailbox and id, their sender."""

_PATTERN_WORK = 128
"""A publish to a pattern counts as this many deliveries: finding its endpoints takes time, too."""

_MAILBOX_WORK = 256
"""The creation of a mailbox counts as this many deliveries: its directories take about 1 ms."""


class Publishing:
    """Publishes drafts, synchronously: decisions become durable with the next commit."""

    def __init__(  # noqa: PLR0913 - what a publish touches
        self,
        ledger: Ledger,
        settings: Callable[[], Settings],
        access: AccessFile,
        arrivals: Arrivals,
        rejections: RejectionLog,
        recipients: Recipients,
        *,
        forwarding: Forwarding | None,
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._settings = settings
        self._access = access
        self._arrivals = arrivals
        self._rejections = rejections
        self._make_id = UlidFactory(secrets.token_bytes).make
        self._recipients = recipients
        self._forwarding = forwarding
        self._claims: list[Claims] = []

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
        now_ms, forwarding = now_us // 1000, self._forwarding
        elsewhere = () if forwarding is None else forwarding.route(draft.sender, draft.subject)
        if draft.message_id is not None:
            first = self._first_result(draft.sender, draft.message_id, now_us)
            if first is not None:
                return first
        if self._ledger.journal.full:
            return rejected_result(Reason.STORAGE_FULL, self._ledger.journal.full_because)
        rate = admit_sender(draft.sender, self._state.windows, settings, now_ms, draft.network)
        if rate.reason is not None:
            return self._reject(draft, rate, budget, content, now_us)
        if elsewhere:
            return self._forward(draft, content, elsewhere, budget, rate, now_us)
        recipients = self._allowed_recipients(draft, settings, now_us)
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
                recipients = self._recipients.create(draft.subject)
            except MailboxUnavailable as problem:
                reason, detail = Reason.MAILBOX_UNAVAILABLE, str(problem)
                rate = replace(rate, reason=reason, detail=detail)
                return self._reject(draft, rate, budget, content, now_us)
            self._reject_taken(draft.sender, event.id, recipients)
        if not recipients:
            event.parts = 0
            self._ledger.record(event)
            return PublishResult(message_id=event.id, delivered_to=0, budget_cut=event.budget_cut)
        if draft.delay is not None or draft.deliver_at is not None:
            event.due_us = due_us(draft, settings, now_us)
        return self._arrivals.fan_out(event, content, recipients, settings)

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
        return result if self._forwarding is None else await self._forwarding.wait(result)

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
                created = self._recipients.created
                try:
                    result = self.publish(draft, content, budget)
                except AccessDenied as denied:
                    result = rejected_result(Reason.ACCESS_DENIED, str(denied))
                results.append(result)
                work += 1 + _MAILBOX_WORK * (self._recipients.created - created)
                if not is_literal(draft.subject):
                    work += max(result.delivered_to + len(result.rejected), _PATTERN_WORK)
        finally:
            self._claims = [one for one in self._claims if one is not claims]
        try:
            await self._ledger.sync()
        except RelayStopped as stopped:
            return [storage_failed_result(stopped) for _ in results]
        if self._forwarding is None:
            return results
        return [await self._forwarding.wait(result) for result in results]

    def _allowed_recipients(
        self, draft: Draft, settings: Settings, now_us: int
    ) -> Sequence[Mailbox] | None:
        """Carry out step 4: return the mailboxes that the sender may publish to.

        None if the subject is a pattern that matches more than `max_fanout` of them.
        """
        subject, sender = draft.subject, draft.sender
        found = self._recipients.find(subject)
        if found is None:
            if not may_use_patterns(sender, settings):
                raise self._denied(draft, now_us, NO_PATTERNS_TEXT)
            found = self._recipients.match(subject, settings.max_fanout)
        if found is None or not self._access.restricts or sender == RELAY:
            return found  # access rules do not apply to the relay itself
        allowed = self._recipients.allowed(sender, found)
        if not allowed and (found or not self._access.check_access(sender, subject).allowed):
            raise self._denied(draft, now_us)
        self._require_reply_address(draft, now_us)
        return allowed

    def _forward(
        self,
        draft: Draft,
        content: bytes,
        partitions: Sequence[int],
        budget: Budget,
        rate: SenderVerdict,
        now_us: int,
    ) -> PublishResult:
        """Carry out step 4 for a message to other partitions, which carry out step 5.

        Of a pattern that touches this partition, too, both are carried out here at once.
        """
        forwarding, sender, settings = self._forwarding, draft.sender, self._settings()
        assert forwarding is not None
        self._require_access(draft, settings, now_us)
        others = [one for one in partitions if one != forwarding.number]
        detail = forwarding.require_room(sender, draft.message_id, others)
        if detail:
            rate = replace(rate, reason=Reason.PARTITION_UNAVAILABLE, detail=detail)
            return self._reject(draft, rate, budget, content, now_us)
        message_id = draft.message_id or self._make_id(now_us // 1000)
        event = arrival_of(draft, message_id, budget, rate, now_us)
        event.due_us = due_us(draft, settings, now_us)
        result, first = forwarding.forward(event, content, others)
        if len(others) < len(partitions):
            result.add(self._arrivals.decide(forwarding.number, first, content))
        return result

    def _require_access(self, draft: Draft, settings: Settings, now_us: int) -> None:
        """Raise `AccessDenied` if the sender may not publish to this subject, or to patterns."""
        sender, subject = draft.sender, draft.subject
        if not is_literal(subject) and not may_use_patterns(sender, settings):
            raise self._denied(draft, now_us, NO_PATTERNS_TEXT)
        if not self._access.restricts or sender == RELAY:
            return
        if is_literal(subject) and not self._access.check_access(sender, subject).allowed:
            raise self._denied(draft, now_us)
        self._require_reply_address(draft, now_us)

    def _require_reply_address(self, draft: Draft, now_us: int) -> None:
        """Raise `AccessDenied` if the sender may not publish to its reply address: the recipient
        will."""
        sender, reply_to = draft.sender, draft.reply_to
        if reply_to is None or reply_to == sender or reply_to.startswith(REPLY_PREFIX):
            return
        if not self._access.check_access(sender, reply_to).allowed:
            text = f"access rules do not let {sender} name {reply_to} as the reply address"
            raise self._denied(draft, now_us, text)

    def _denied(self, draft: Draft, now_us: int, text: str = "") -> AccessDenied:
        """Journal that a publish is denied; return the error."""
        message_id, sender, subject = draft.message_id or "", draft.sender, draft.subject
        self._rejections.record_denied(message_id, sender, subject, now_us)
        return AccessDenied(sender, subject, text)

    def _first_result(self, sender: str, message_id: str, now_us: int) -> PublishResult | None:
        """Carry out step 2: return the first result of this id, or None if it may be published.

        An id that was stored nowhere may be retried. Each sender has its own ids.
        """
        if self._forwarding is not None:
            undecided = self._forwarding.join(sender, message_id)
            if undecided is not None:
                return undecided
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
            mailboxes = self._recipients.find(draft.subject)
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
        found = self._recipients.match(draft.subject, settings.max_fanout)
        if found is None:
            left[sender] -= 1
            return ()
        reaches = self._recipients.allowed(sender, found) or not self._access.restricts
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
