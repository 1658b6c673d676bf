"""Delivery of one message to one mailbox: decide, then store, dead-letter or reject."""

import msgspec

from waypost.policy.admission import DeliveryVerdict, admit_delivery, make_room
from waypost.policy.breakers import CLOSED
from waypost.policy.reasons import DEAD_LETTERED, Reason
from waypost.policy.settings import Settings
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.drafts import PreparedMessage
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.signals import PressureSignals
from waypost.relay.delivery.subscriptions import Subscriptions
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.relay_state import RelayState
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Rejected


class Deliverer:
    """Carries out step 5 of admission."""

    def __init__(
        self,
        state: RelayState,
        transitions: Transitions,
        breaker_feedback: BreakerFeedback,
        rejections: RejectionLog,
        pressure_signals: PressureSignals,
        subscriptions: Subscriptions,
    ) -> None:
        self._state = state
        self._transitions = transitions
        self._breaker_feedback = breaker_feedback
        self._rejections = rejections
        self._pressure_signals = pressure_signals
        self._handlers = subscriptions.handlers

    def deliver(
        self, prepared: PreparedMessage, mailbox: Mailbox, part: tuple[int, int], settings: Settings
    ) -> DeliveryVerdict:
        """Decide and record; `part` is the index of this endpoint and the number of endpoints."""
        now_ms = prepared.at_ms
        if now_ms > mailbox.earliest_ttl:
            self._transitions.expire_due(mailbox)
        event = _arrival(prepared, mailbox.subject, part)
        if settings.qos.enabled:
            window_ms = settings.qos.bidirectional_window_ms
            event.tier = self._state.tier(event.sender, event.endpoint, now_ms, window_ms)
        breakers = self._breaker_feedback.breakers
        verdict = admit_delivery(event, mailbox.occupancy, breakers, settings, now_ms)
        if verdict.transition is not None:
            self._breaker_feedback.record_transition(verdict.transition, prepared.at_us)
        if verdict.evict_bytes:
            self._make_room(mailbox, verdict, prepared.at_us)
        event.depth = verdict.depth
        event.depth_bytes = verdict.depth_bytes
        event.quota_count = verdict.quota_count
        event.quota_bytes = verdict.quota_bytes
        if verdict.breaker is not CLOSED:
            event.breaker = verdict.breaker
            event.probe = verdict.probe
        backpressure = settings.backpressure
        if backpressure.enabled:
            event.depth_max = backpressure.max_mailbox_size
            if verdict.pressure >= backpressure.pressure_warning_at:
                self._pressure_signals.pressure(
                    event.sender, mailbox, verdict, settings, prepared.at_us
                )
        if verdict.reason is None:
            if self._handlers(mailbox.subject):
                event.deferred = True
            self._transitions.store(mailbox, event, prepared.content)
            return verdict
        rejected = _as_rejected(event, verdict, verdict.reason)
        if rejected.reason in DEAD_LETTERED:
            self._transitions.store_rejected(mailbox, rejected, prepared.content)
        else:
            self._rejections.record(rejected)
        return verdict

    def _make_room(self, mailbox: Mailbox, verdict: DeliveryVerdict, at_us: int) -> None:
        pending = list(mailbox.pending())
        sizes = [(message.sender, message.size) for message in pending]
        breakers = self._breaker_feedback.breakers
        for position in make_room(verdict, mailbox.subject, sizes, breakers):
            message = pending[position]
            self._transitions.evict(message, "evicted: its sender held the most bytes of the inbox")
            self._pressure_signals.evicted(message, at_us)


def _arrival(prepared: PreparedMessage, endpoint: str, part: tuple[int, int]) -> Accepted:
    """Return the arrival event; optional fields are set only when they differ from the default."""
    draft, budget, rate = prepared.draft, prepared.budget, prepared.rate
    event = Accepted(
        at_us=prepared.at_us,
        id=prepared.id,
        sender=draft.sender,
        subject=draft.subject,
        endpoint=endpoint,
        budget=budget,
        rate_count=rate.count,
        rate_limit=rate.limit,
    )
    if part[1] != 1:
        event.part, event.parts = part
    if draft.reply_to is not None:
        event.reply_to = draft.reply_to
    if draft.parent is not None:
        event.parent = draft.parent.id
    if draft.message_id is not None:
        event.chosen_id = True
    event.size = stored_size(event, budget, endpoint, len(prepared.content))
    return event


def _as_rejected(event: Accepted, verdict: DeliveryVerdict, reason: Reason) -> Rejected:
    fields = msgspec.structs.asdict(event)
    del fields["deferred"], fields["probe"]
    return Rejected(
        **fields, reason=reason, detail=verdict.detail, retry_after_ms=verdict.retry_after_ms
    )
