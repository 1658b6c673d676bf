"""Delivery of one message to one mailbox: decide, then store, dead-letter or reject."""

import secrets
from collections.abc import Callable, Iterator, Sequence

from waypost.policy.admission import (
    DeliveryVerdict,
    admit_delivery,
    admit_sender,
    keeps_dead_letter,
    make_room,
)
from waypost.policy.bounds import notice_max_messages
from waypost.policy.breakers import CLOSED
from waypost.policy.reasons import DEAD_LETTERED
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.policy.settings import Settings
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.drafts import Draft, arrival_of, encode_draft, initial_budget
from waypost.relay.delivery.forwarding import Forwarding
from waypost.relay.delivery.rejections import RejectionLog
from waypost.relay.delivery.signals import PressureSignals
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.relay.state.relay_state import RelayState
from waypost.wire.envelopes import stored_size
from waypost.wire.events import Accepted, Rejected
from waypost.wire.identifiers import UlidFactory
from waypost.wire.payloads import EvictionNotice

EVICTED_TEXT = "evicted: its sender held the most bytes of the inbox"


class Deliverer:
    """Carries out step 5 of admission."""

    def __init__(  # noqa: PLR0913 - what a delivery touches
        self,
        state: RelayState,
        transitions: Transitions,
        breaker_feedback: BreakerFeedback,
        rejections: RejectionLog,
        pressure_signals: PressureSignals,
        is_consumed: Callable[[str], bool],
        *,
        forwarding: Forwarding | None,
    ) -> None:
        """Take `is_consumed(subject)`: whether a consumer of that mailbox is there now."""
        self._state = state
        self._transitions = transitions
        self._breaker_feedback = breaker_feedback
        self._rejections = rejections
        self._pressure_signals = pressure_signals
        self._is_consumed = is_consumed
        self._forwarding = forwarding
        self._make_id = UlidFactory(secrets.token_bytes).make

    def deliver(
        self, event: Accepted, content: bytes, mailbox: Mailbox, settings: Settings
    ) -> DeliveryVerdict:
        """Decide about an arrival, complete it, and record it; `content` is its payload as JSON."""
        at_us, subject = event.at_us, mailbox.subject
        now_ms = at_us // 1000
        if now_ms > mailbox.earliest_ttl:
            self._transitions.expire_due(mailbox)
        event.endpoint = subject
        event.size = stored_size(event, event.budget, subject, len(content))
        if settings.qos.enabled:
            window_ms = settings.qos.bidirectional_window_ms
            event.tier = self._state.tier(event.sender, subject, now_ms, window_ms)
        breakers = self._breaker_feedback.breakers
        verdict = admit_delivery(event, mailbox.occupancy, breakers, settings, now_ms)
        if verdict.transition is not None:
            self._breaker_feedback.record_transition(verdict.transition, at_us)
        evicted = self._make_room(mailbox, event, verdict, settings) if verdict.evict_bytes else ()
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
                self._pressure_signals.pressure(event.sender, mailbox, verdict, settings, at_us)
        if verdict.reason is None:
            if self._is_consumed(subject):
                event.deferred = True
            self._transitions.store(mailbox, event, content)
            if evicted:
                self._notify_senders(evicted, at_us, settings)
            return verdict
        wait_ms = verdict.retry_after_ms
        rejected = Rejected.of(event, verdict.reason, verdict.detail, wait_ms)
        if rejected.reason in DEAD_LETTERED:
            rejected.kept = keeps_dead_letter(event, mailbox.rejected, settings)
            if rejected.kept:
                self._rejections.counts.add(rejected.sender, rejected.reason, at_us)
                self._transitions.store_rejected(mailbox, rejected, content)
                return verdict
        self._rejections.record(rejected)
        return verdict

    def _make_room(
        self, mailbox: Mailbox, arrival: Accepted, verdict: DeliveryVerdict, settings: Settings
    ) -> Sequence[Message]:
        """Evict messages for an admitted arrival, and return them, or reject it."""
        pending = [*mailbox.pending(), *mailbox.scheduled()]
        sizes = [(message.sender, message.size) for message in pending]
        tiers: dict[str, int] = {}
        if settings.qos.overflow == "evict_least_known":
            now_ms, window_ms = arrival.at_us // 1000, settings.qos.bidirectional_window_ms
            senders = {sender for sender, _ in sizes}
            tiers = self._state.tiers(senders, mailbox.subject, now_ms, window_ms)
        breakers = self._breaker_feedback.breakers
        spare_relay = settings.relay_messages is not None
        victims = make_room(verdict, arrival, sizes, tiers, breakers, spare_relay=spare_relay)
        evicted = [pending[at] for at in victims]
        for message in evicted:
            self._transitions.evict(message, EVICTED_TEXT)
            self._pressure_signals.evicted(message, arrival.at_us)
        return evicted

    def _notify_senders(self, evicted: Sequence[Message], at_us: int, settings: Settings) -> None:
        """Store a notice for each sender of `evicted` that has a mailbox, in the same commit, or
        forward it to the partition that may have one.

        A notice evicts nothing, so it causes no other.
        """
        if settings.qos.overflow != "evict_least_known":
            return
        at_ms = at_us // 1000
        for sender, notice in _eviction_notices(evicted):
            mailbox, forwarding = self._state.mailboxes.get(sender), self._forwarding
            elsewhere = () if forwarding is None else forwarding.route(RELAY, sender)
            is_here = mailbox is not None and mailbox.registered
            if is_reserved(sender) or not (is_here or elsewhere):
                continue
            draft = Draft(sender, notice, sender=RELAY)
            content = encode_draft(draft, settings)
            budget = initial_budget(draft, settings, at_ms)
            rate = admit_sender(RELAY, self._state.windows, settings, at_ms)
            event = arrival_of(draft, self._make_id(at_ms), budget, rate, at_us)
            if forwarding is not None and elsewhere:
                forwarding.forward(event, content, elsewhere)
            elif mailbox is not None:
                self.deliver(event, content, mailbox, settings)


def _eviction_notices(evicted: Sequence[Message]) -> Iterator[tuple[str, EvictionNotice]]:
    """Yield for each sender the notices about its messages, which are all of one mailbox."""
    ids: dict[str, list[str]] = {}
    for message in evicted:
        ids.setdefault(message.sender, []).append(message.id)
    recipient = evicted[0].endpoint
    for sender, own in ids.items():
        for begin in range(0, len(own), notice_max_messages):
            yield sender, EvictionNotice.about(own[begin : begin + notice_max_messages], recipient)
