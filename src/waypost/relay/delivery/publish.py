"""The path of one publish: load → decide → record → apply → show → notify.

Crash points, from top to bottom: before `record`, nothing has happened; before the commit,
nothing was confirmed; after the commit, recovery finds everything.
"""

import secrets
from collections.abc import Callable, Sequence

from waypost.policy.admission import SenderVerdict, admit_sender
from waypost.policy.budgets import Budget
from waypost.policy.errors import AccessDenied, InvalidMessage
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY
from waypost.policy.settings import Settings
from waypost.policy.subjects import is_literal
from waypost.relay.config.access_file import AccessFile
from waypost.relay.delivery.deliver import Deliverer
from waypost.relay.delivery.drafts import Draft, PreparedMessage, encode_draft, initial_budget
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.requests import REPLY_PREFIX
from waypost.relay.errors import RelayStopped
from waypost.relay.state.duplicates import duplicate_key
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Rejected
from waypost.wire.identifiers import UlidFactory
from waypost.wire.results import PublishResult, Rejection


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
        and rate limit has no recipient, and returns whether it has one now."""
        self._ledger = ledger
        self._state = ledger.state
        self._settings = settings
        self._access = access
        self._delivery = delivery
        self._rejections = rejections
        self._make_id = UlidFactory(secrets.token_bytes).make
        self._create_mailbox = create_mailbox

    def publish(
        self, draft: Draft, content: bytes | None = None, budget: Budget | None = None
    ) -> PublishResult:
        """Decide about a draft, and record the decision.

        `content` and `budget` are given if the draft was encoded before.
        """
        settings = self._settings()
        if content is None:
            content = encode_draft(draft, settings)
        now_us = self._ledger.now_us()
        now_ms = now_us // 1000
        if budget is None:
            budget = initial_budget(draft, settings, now_ms)
        recipients = self._recipients(draft, now_us)
        if draft.message_id is not None:
            first = self._first_result(draft.sender, draft.message_id, recipients)
            if first is not None:
                return first
        if self._ledger.journal.full:
            return rejected_result(Reason.STORAGE_FULL, "the disk of the relay is full")
        rate = admit_sender(draft.sender, self._state.windows, settings, now_ms)
        if rate.reason is not None:
            self._rejections.record(_rate_limited(draft, rate, budget, content, now_us))
            return rejected_result(rate.reason, rate.detail, rate.retry_after_ms)
        message_id = draft.message_id or self._make_id(now_ms)
        prepared = PreparedMessage(draft, message_id, content, budget, now_us, now_ms, rate)
        if not recipients and self._create_mailbox(draft.subject):
            recipients = self._recipients(draft, now_us)
            self._reject_taken(draft.sender, message_id, recipients)
        if not recipients:
            return self._no_recipient(prepared)
        return self._fan_out(prepared, recipients, settings)

    def publish_many(self, drafts: Sequence[Draft]) -> list[PublishResult]:
        """Decide about many drafts; if one is invalid, raise before any decision."""
        settings, now_ms = self._settings(), self._ledger.now_us() // 1000
        contents = [encode_draft(draft, settings) for draft in drafts]
        owners: dict[tuple[str, str], str] = {}
        budgets = [initial_budget(draft, settings, now_ms) for draft in drafts]
        for draft in drafts:
            if draft.message_id is not None:
                self._claim_id(draft, draft.message_id, owners)
        results = []
        for draft, content, budget in zip(drafts, contents, budgets, strict=True):
            try:
                results.append(self.publish(draft, content, budget))
            except AccessDenied as denied:
                results.append(rejected_result(Reason.ACCESS_DENIED, str(denied)))
        return results

    def _recipients(self, draft: Draft, now_us: int) -> Sequence[Mailbox]:
        """Carry out steps 1 and 2: return the mailboxes that the sender may publish to."""
        subject, sender = draft.subject, draft.sender
        found = self._match(subject)
        if not self._access.restricts or sender == RELAY:
            return found  # access rules do not apply to the relay itself
        allowed = [to for to in found if self._access.check_access(sender, to.subject).allowed]
        if not allowed and (found or not self._access.check_access(sender, subject).allowed):
            self._rejections.record_denied(draft.message_id or "", sender, subject, now_us)
            raise AccessDenied(sender, subject)
        return allowed

    def _match(self, subject: str) -> Sequence[Mailbox]:
        """Return the mailboxes of registered endpoints that a subject or pattern matches."""
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is not None:
            return (mailbox,) if mailbox.registered else ()
        return () if is_literal(subject) else self._match_pattern(subject)

    def _match_pattern(self, pattern: str) -> list[Mailbox]:
        """Return the endpoints that match a pattern.

        Reply subjects match only a pattern with their prefix: a broadcast is not a reply.
        """
        found = self._state.endpoints.within(pattern)
        if pattern.startswith(REPLY_PREFIX):
            return found
        return [mailbox for mailbox in found if not mailbox.subject.startswith(REPLY_PREFIX)]

    def _first_result(
        self, sender: str, message_id: str, recipients: Sequence[Mailbox]
    ) -> PublishResult | None:
        """Carry out step 3: return the first result of this id, or None if it may be published.

        An id that was stored nowhere may be retried. Each sender has its own ids; a mailbox that
        holds another sender's message with this id cannot accept this one.
        """
        first = self._state.duplicates.get(duplicate_key(sender, message_id))
        window_us = self._settings().housekeeping.duplicate_window_ms * 1000
        recent = first is not None and first.at_us >= self._ledger.now_us() - window_us
        if first is not None and recent and first.result.delivered_to:
            return first.result
        self._reject_taken(sender, message_id, recipients)
        now_ms = self._ledger.now_us() // 1000
        holders = sum(mailbox.holds(message_id, now_ms) for mailbox in recipients)
        return PublishResult(message_id=message_id, delivered_to=holders) if holders else None

    def _reject_taken(self, sender: str, message_id: str, recipients: Sequence[Mailbox]) -> None:
        """Raise `InvalidMessage` if a mailbox holds another sender's message with this id."""
        if any(mailbox.holds_from_other_sender(message_id, sender) for mailbox in recipients):
            raise InvalidMessage(f"message id {message_id} is taken: choose another")

    def _claim_id(self, draft: Draft, message_id: str, owners: dict[tuple[str, str], str]) -> None:
        """Reserve an id of one draft of many in each of its mailboxes."""
        for mailbox in self._match(draft.subject):
            self._reject_taken(draft.sender, message_id, (mailbox,))
            owner = owners.setdefault((mailbox.subject, message_id), draft.sender)
            if owner != draft.sender:
                raise InvalidMessage(f"message id {message_id} is taken: choose another")

    def _no_recipient(self, prepared: PreparedMessage) -> PublishResult:
        draft = prepared.draft
        self._ledger.record(
            Accepted(
                at_us=prepared.at_us,
                id=prepared.id,
                sender=draft.sender,
                subject=draft.subject,
                parts=0,
                chosen_id=draft.message_id is not None,
                budget=prepared.budget,
                rate_count=prepared.rate.count,
                rate_limit=prepared.rate.limit,
            )
        )
        return PublishResult(message_id=prepared.id, delivered_to=0)

    def _fan_out(
        self, prepared: PreparedMessage, recipients: Sequence[Mailbox], settings: Settings
    ) -> PublishResult:
        """Carry out step 5 for each mailbox."""
        result = PublishResult(message_id=prepared.id, delivered_to=0)
        shows_pressure, parts = settings.backpressure.enabled, len(recipients)
        for part, mailbox in enumerate(recipients):
            verdict = self._delivery.deliver(prepared, mailbox, (part, parts), settings)
            if shows_pressure:
                result.mailbox_pressure[mailbox.hash] = verdict.pressure
            if verdict.reason is None:
                result.delivered_to += 1
                continue
            result.rejected.append(Rejection(mailbox.hash, verdict.reason, verdict.detail))
            result.retry_after_ms = max(result.retry_after_ms, verdict.retry_after_ms)
        return result


def _rate_limited(
    draft: Draft, rate: SenderVerdict, budget: Budget, content: bytes, now_us: int
) -> Rejected:
    """Return the rejection of a whole publish; its size is that of a delivery to its subject."""
    event = Rejected(
        at_us=now_us,
        id=draft.message_id or "",
        sender=draft.sender,
        subject=draft.subject,
        budget=budget,
        rate_count=rate.count,
        rate_limit=rate.limit,
        reason=Reason.RATE_LIMITED,
        detail=rate.detail,
        retry_after_ms=rate.retry_after_ms,
    )
    event.size = stored_size(event, budget, draft.subject, len(content))
    return event


def storage_failed_result(stopped: RelayStopped) -> PublishResult:
    """Return the rejection for a full disk; raise any other failure of the journal."""
    if not stopped.full:
        raise stopped
    return rejected_result(Reason.STORAGE_FULL, str(stopped))


def rejected_result(reason: Reason, detail: str, retry_after_ms: int = 0) -> PublishResult:
    """Return the result of a publish that was rejected as a whole."""
    return PublishResult(
        message_id="",
        delivered_to=0,
        rejected=[Rejection("", reason, detail)],
        retry_after_ms=retry_after_ms,
    )
