"""One message into one mailbox: decide → journal → apply → show."""

from collections.abc import Callable

import msgspec

from waypost.policy.admission import Arrival, DeliveryVerdict, admit_delivery
from waypost.policy.bounds import payload_inline_max_bytes
from waypost.policy.budgets import spend
from waypost.policy.occupancy import choose_victims
from waypost.policy.settings import Settings
from waypost.policy.tiers import Tier, tier_of
from waypost.policy.verdicts import DEAD_LETTERED, Reason
from waypost.relay.bodies import Bodies
from waypost.relay.drafts import Prepared
from waypost.relay.ledger import Ledger
from waypost.relay.mailbox import Mailbox
from waypost.relay.movements import Movements
from waypost.relay.notices import Notices
from waypost.relay.outcomes import Outcomes
from waypost.relay.rejections import RejectionLog
from waypost.relay.views import MailboxView
from waypost.wire.envelopes import Envelope, encode_envelope, instant
from waypost.wire.events import Accepted, Rejected


class Delivery:
    """Step 5 of admission, carried out."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts a delivery touches
        self,
        ledger: Ledger,
        view: MailboxView,
        outcomes: Outcomes,
        bodies: Bodies,
        movements: Movements,
        rejections: RejectionLog,
        notices: Notices,
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._view = view
        self._outcomes = outcomes
        self._bodies = bodies
        self._movements = movements
        self._rejections = rejections
        self._notices = notices
        self.has_handler: Callable[[str], bool] = lambda endpoint: False

    def deliver(
        self, prepared: Prepared, mailbox: Mailbox, part: tuple[int, int], settings: Settings
    ) -> DeliveryVerdict:
        """Decide and record; `part` is which of how many endpoints this is."""
        endpoint, now_ms = mailbox.subject, prepared.at_ms
        if now_ms > mailbox.earliest_ttl:
            self._movements.expire_due(mailbox)
        envelope = _envelope(prepared, endpoint)
        content = encode_envelope(envelope)
        sender = prepared.draft.sender
        arrival = Arrival(sender, endpoint, prepared.budget, len(content), Tier.UNKNOWN)
        if settings.qos.enabled:
            arrival.tier = self._tier(sender, endpoint, settings, now_ms)
        breakers = self._outcomes.breakers
        verdict = admit_delivery(arrival, mailbox.occupancy, breakers, settings, now_ms)
        if verdict.transition is not None:
            self._outcomes.moved(verdict.transition, prepared.at_us)
        if verdict.evict_bytes and verdict.reason is None:
            self._make_room(mailbox, verdict, prepared.at_us)
        warning_at = settings.backpressure.pressure_warning_at
        if settings.backpressure.enabled and verdict.pressure >= warning_at:
            self._notices.pressure(sender, mailbox, verdict, settings, prepared.at_us)
        accepted = _accepted(prepared, arrival, verdict, part, settings)
        if verdict.reason is None:
            self._store(accepted, mailbox, prepared, envelope, content)
        else:
            self._refuse(accepted, mailbox, prepared, envelope, verdict)
        return verdict

    def _store(
        self,
        accepted: Accepted,
        mailbox: Mailbox,
        prepared: Prepared,
        envelope: Envelope,
        content: bytes,
    ) -> None:
        accepted.deferred = self.has_handler(mailbox.subject)
        self._ledger.record(accepted, _attach(accepted, prepared.content))
        self._view.stored(mailbox, accepted.id, content)
        self._bodies.keep(mailbox.live[accepted.id], envelope)
        self._ledger.wake(mailbox.subject)
        if not accepted.deferred:
            self._outcomes.stored(mailbox.subject, accepted.at_us)

    def _refuse(
        self,
        accepted: Accepted,
        mailbox: Mailbox,
        prepared: Prepared,
        envelope: Envelope,
        verdict: DeliveryVerdict,
    ) -> None:
        assert verdict.reason is not None
        rejected = _as_rejected(accepted, verdict, verdict.reason)
        if rejected.reason not in DEAD_LETTERED:
            self._rejections.note(rejected)
            return
        self._ledger.record(rejected, _attach(rejected, prepared.content))
        self._view.buried(mailbox, envelope, rejected.detail, rejected.at_us)

    def _tier(self, sender: str, endpoint: str, settings: Settings, now_ms: int) -> Tier:
        seen = self._state.last_seen.get
        window_ms = settings.qos.bidirectional_window_ms
        # This very message is the newest in its direction, whatever becomes of it.
        return tier_of(now_ms, seen((endpoint, sender)), now_ms, window_ms)

    def _make_room(self, mailbox: Mailbox, verdict: DeliveryVerdict, at_us: int) -> None:
        waiting = list(mailbox.pending())
        evictable = [(message.sender, message.size) for message in waiting]
        victims = choose_victims(evictable, verdict.evict_bytes)
        if not victims:
            verdict.reason = Reason.BACKPRESSURE
            verdict.detail = "backpressure: inbox bytes are all with the consumer"
            if verdict.probe:
                self._outcomes.breakers.release_probe(mailbox.subject)
        for position in victims:
            message = waiting[position]
            self._movements.evict(message, "evicted: its sender held the most bytes of the inbox")
            self._notices.evicted(message, at_us)


def _envelope(prepared: Prepared, endpoint: str) -> Envelope:
    draft = prepared.draft
    return Envelope(
        id=prepared.id,
        subject=draft.subject,
        sender=draft.sender,
        reply_to=draft.reply_to,
        budget=spend(prepared.budget, endpoint),
        created_at=instant(prepared.at_us),
        payload=msgspec.Raw(prepared.content),
    )


def _accepted(
    prepared: Prepared,
    arrival: Arrival,
    verdict: DeliveryVerdict,
    part: tuple[int, int],
    settings: Settings,
) -> Accepted:
    draft = prepared.draft
    return Accepted(
        at_us=prepared.at_us,
        id=prepared.id,
        sender=draft.sender,
        subject=draft.subject,
        endpoint=arrival.endpoint,
        part=part[0],
        parts=part[1],
        reply_to=draft.reply_to,
        parent=draft.parent.id if draft.parent is not None else None,
        chosen_id=draft.message_id is not None,
        size=arrival.size_bytes,
        budget=prepared.budget,
        tier=arrival.tier.value,
        rate_count=prepared.rate.count,
        rate_limit=prepared.rate.limit,
        depth=verdict.depth,
        depth_max=settings.backpressure.max_mailbox_size if settings.backpressure.enabled else 0,
        quota_count=verdict.quota_count,
        quota_bytes=verdict.quota_bytes,
        breaker=verdict.breaker,
        probe=verdict.probe,
    )


def _as_rejected(accepted: Accepted, verdict: DeliveryVerdict, reason: Reason) -> Rejected:
    fields = msgspec.structs.asdict(accepted)
    del fields["deferred"], fields["probe"]
    return Rejected(
        **fields, reason=reason, detail=verdict.detail, retry_after_ms=verdict.retry_after_ms
    )


def _attach(event: Accepted | Rejected, content: bytes) -> bytes | None:
    """Put a small payload into its event; a large one is returned, for the body file."""
    if len(content) > payload_inline_max_bytes:
        return content
    event.payload = msgspec.Raw(content)
    return None
