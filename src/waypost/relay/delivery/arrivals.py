"""Arrivals: messages that passed the checks of their sender, at the endpoints that decide.

A message of another partition arrives here after that partition has checked its sender. It may
arrive several times, and late: the carrier loses answers, and relays crash.

Rule 1  The decision about a forwarded message is in the journal, with the line that forwarded it.
        The same line, or an earlier one of the same id, gets the same decision again.
Rule 2  A message that was stored is not stored again, whichever line forwards its id.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from waypost.policy.admission import admit_fan_out
from waypost.policy.bounds import turn_max_deliveries
from waypost.policy.errors import InvalidInput, InvalidMessage
from waypost.policy.partitions import partition_of, partitions_of
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.policy.settings import Settings
from waypost.policy.subjects import is_literal, validate_subject
from waypost.relay.delivery.deliver import Deliverer
from waypost.relay.delivery.recipients import Recipients
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.errors import MailboxUnavailable
from waypost.relay.state.duplicates import RecordedResult, duplicate_key
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Forwarded, Rejected
from waypost.wire.identifiers import validate_message_id, validate_thread
from waypost.wire.outcomes import ForwardOutcome
from waypost.wire.results import PublishResult, Rejection


class Arrivals:
    """Carries out step 5 of admission for messages of this partition and of others."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Callable[[], Settings],
        recipients: Recipients,
        delivery: Deliverer,
        rejections: RejectionLog,
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._settings = settings
        self._recipients = recipients
        self._delivery = delivery
        self._rejections = rejections

    def fan_out(
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

    async def decide_all(
        self, origin: int, messages: Sequence[Forwarded], partition: int, count: int
    ) -> list[ForwardOutcome]:
        """Return the decisions about messages that `origin` forwarded to `partition` of `count`,
        once they are durable. Other tasks get their turn in between."""
        outcomes, work = list[ForwardOutcome](), 0
        for one in messages:
            if work >= turn_max_deliveries:
                await asyncio.sleep(0)
                work = 0
            try:
                content = _validated(one, self._settings())
                _check_way(one, origin, partition, count)
                outcome = self.decide(origin, one, content)
            except InvalidInput as problem:
                outcome = ForwardOutcome(error=str(problem))
            outcomes.append(outcome)
            work += 1 + outcome.delivered_to + len(outcome.rejected)
        await self._ledger.sync()
        return outcomes

    def decide(self, origin: int, message: Forwarded, content: bytes) -> ForwardOutcome:
        """Decide about a message that `origin` forwarded, and record that, unless it was before.

        Raises `InvalidMessage` if a message of another sender has its id.
        """
        known = self._state.duplicates.get(duplicate_key(message.sender, message.id))
        if known is not None:
            first = known.read(RecordedResult)
            is_earlier = first.origin == origin and message.seq <= first.origin_seq
            if first.delivered_to or is_earlier:
                return _outcome(first)
        settings = self._settings()
        with self._ledger.one_time as now_us:
            return self._decide(origin, message, content, settings, now_us)

    def _decide(
        self, origin: int, message: Forwarded, content: bytes, settings: Settings, now_us: int
    ) -> ForwardOutcome:
        event = _as_accepted(message, origin, now_us)
        found = self._recipients.find(message.subject)
        if found is None:
            matching = self._recipients.match(message.subject, settings.max_fanout)
            if matching is None:
                detail = admit_fan_out(settings.max_fanout + 1, settings)
                return self._reject(event, content, Reason.FANOUT_EXCEEDED, detail)
            found = self._recipients.allowed(message.sender, matching)
        elif not found and message.sender != RELAY:
            try:
                found = self._recipients.create(message.subject)
            except MailboxUnavailable as problem:
                return self._reject(event, content, Reason.MAILBOX_UNAVAILABLE, str(problem))
        if any(one.holds_from_other_sender(message.id, message.sender) for one in found):
            raise InvalidMessage(f"message id {message.id} is taken: choose another")
        if not found:
            event.parts = 0
            self._ledger.record(event)
            return ForwardOutcome()
        result = self.fan_out(event, content, found, settings)
        if is_literal(message.subject):
            return _outcome(result)
        return _outcome(result, endpoints=tuple([mailbox.subject for mailbox in found]))

    def _reject(
        self, event: Accepted, content: bytes, reason: Reason, detail: str
    ) -> ForwardOutcome:
        """Record that a message was rejected by no endpoint in particular."""
        rejected = Rejected.of(event, reason, detail)
        rejected.size = stored_size(event, event.budget, event.subject, len(content))
        self._rejections.record(rejected)
        return ForwardOutcome(rejected=(Rejection("", reason, detail),))


def _outcome(result: PublishResult, endpoints: tuple[str, ...] = ()) -> ForwardOutcome:
    return ForwardOutcome(
        delivered_to=result.delivered_to,
        rejected=tuple(result.rejected),
        retry_after_ms=result.retry_after_ms,
        endpoints=endpoints,
    )


def _validated(message: Forwarded, settings: Settings) -> bytes:
    """Return the payload of a message as JSON, or raise `InvalidInput`."""
    validate_subject(message.subject, allow_wildcards=True)
    validate_subject(message.sender)
    validate_message_id(message.id)
    if message.reply_to is not None:
        validate_subject(message.reply_to)
    if message.thread:
        validate_thread(message.thread)
    content = bytes(message.payload) if message.payload else b""
    if not content or len(content) > settings.max_payload_bytes:
        raise InvalidMessage(
            f"a payload must have 1 to {settings.max_payload_bytes:,} bytes, not {len(content):,}"
        )
    return content


def _check_way(message: Forwarded, origin: int, partition: int, count: int) -> None:
    """Raise `InvalidMessage` if a message is not from the partition of its sender, or not for this
    one."""
    sender, subject = message.sender, message.subject
    if not 0 <= origin < count or not (
        is_reserved(sender) or partition_of(sender, count) == origin
    ):
        raise InvalidMessage(f"{sender} is not a sender of partition {origin}")
    if partition not in partitions_of(subject, count):
        raise InvalidMessage(f"{subject} has no endpoints in partition {partition}")


def _as_accepted(message: Forwarded, origin: int, now_us: int) -> Accepted:
    """Return the arrival of a forwarded message here, at no endpoint yet."""
    return Accepted(
        at_us=now_us,
        id=message.id,
        thread=message.thread,
        sender=message.sender,
        subject=message.subject,
        reply_to=message.reply_to,
        parent=message.parent,
        answer=message.answer,
        due_us=message.due_us,
        chosen_id=message.chosen_id,
        budget=message.budget,
        budget_cut=message.budget_cut,
        origin=origin,
        origin_seq=message.seq,
    )
