"""The order of checks for one publish. No other module knows it.

    1. subject and sender are valid                                    InvalidSubject
    2. access rules, per matching endpoint                             AccessDenied
    3. duplicate id of the same sender                                 returns the first result
       (another sender's id in the same mailbox)                       InvalidMessage
       (a full disk ends the checks here: nothing can be journaled)    storage_full
    4. rate limit of the sender, once per publish                      admit_sender
    5. per endpoint: count cap → byte cap (overflow: reject) →
       quota by tier → circuit breaker → budget → store                admit_delivery

The first rejection wins. A probe slot taken by a delivery that the budget then rejects is
released. Steps 1 to 3 need no counters; steps 4 and 5 are here, split as a replay is split: by
sender, then by recipient.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from waypost.policy.backpressure import check_backpressure
from waypost.policy.breakers import CLOSED, CircuitBreakers, CircuitState, Transition
from waypost.policy.budgets import Budget, overdrawn
from waypost.policy.occupancy import Occupancy, choose_victims
from waypost.policy.rate_limits import RateWindows, check_rate_limit, resolve_limit
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY
from waypost.policy.settings import Settings
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT, within_quota

INBOX_LEASED_TEXT = "backpressure: inbox bytes are all with the consumer"


class Arrival(Protocol):
    """One message arriving at one endpoint. `size` is that of the stored envelope, in bytes."""

    sender: str
    endpoint: str
    budget: Budget
    size: int
    tier: int


class SenderVerdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict of step 4; `reason` is None if the publish passes."""

    reason: Reason | None
    detail: str
    retry_after_ms: int
    count: int
    limit: int


class DeliveryVerdict(msgspec.Struct, gc=False):
    """The verdict of step 5, with the counters it is based on; `reason` is None if admitted.

    `evict_bytes` must be evicted from the mailbox first.
    """

    reason: Reason | None = None
    detail: str = ""
    retry_after_ms: int = 0
    depth: int = 0
    depth_bytes: int = 0
    pressure: float = 0.0
    quota_count: int = 0
    quota_bytes: int = 0
    breaker: CircuitState = CLOSED
    probe: bool = False
    transition: Transition | None = None
    evict_bytes: int = 0


def admit_sender(
    sender: str, windows: RateWindows, settings: Settings, now_ms: int
) -> SenderVerdict:
    """Carry out step 4: decide whether `sender` may publish now. The caller counts the publish."""
    config = settings.rate_limit
    if not config.enabled or sender == RELAY:
        return _UNLIMITED
    window_ms = config.window_secs * 1000
    count = windows.count(sender, now_ms, window_ms)
    limit = resolve_limit(sender, config) if config.per_sender_overrides else config.max_per_window
    if count < limit:
        return SenderVerdict(None, "", 0, count, limit)
    rejected = check_rate_limit(sender, count, config)
    wait_ms = windows.retry_after_ms(sender, now_ms, window_ms, limit)
    return SenderVerdict(Reason.RATE_LIMITED, rejected.reason or "", wait_ms, count, limit)


def admit_delivery(
    arrival: Arrival,
    mailbox: Occupancy,
    breakers: CircuitBreakers,
    settings: Settings,
    now_ms: int,
) -> DeliveryVerdict:
    """Carry out step 5: decide whether `arrival` may be stored in `mailbox` now."""
    depth, cap = mailbox.depth, settings.backpressure
    verdict = DeliveryVerdict(None, "", 0, depth, mailbox.bytes)
    if cap.enabled:
        if depth >= cap.max_mailbox_size:
            full = check_backpressure(depth, cap)
            verdict.pressure = full.pressure
            return _reject(verdict, Reason.BACKPRESSURE, full.reason or "")
        verdict.pressure = depth / cap.max_mailbox_size
    if settings.qos.enabled and not _fits_quota(arrival, mailbox, settings, verdict):
        return verdict
    circuit = breakers.check(arrival.endpoint, now_ms)
    if circuit.state is not CLOSED:
        verdict.breaker = circuit.state
        verdict.probe = circuit.probe
        verdict.transition = circuit.transition
    if not circuit.allowed:
        verdict.retry_after_ms = circuit.retry_after_ms
        return _reject(verdict, Reason.CIRCUIT_OPEN, circuit.reason or "")
    overdraft = overdrawn(arrival.budget, arrival.endpoint, now_ms)
    if overdraft is not None:
        if circuit.probe:
            breakers.release_probe(arrival.endpoint)
            verdict.probe = False
        return _reject(verdict, Reason.BUDGET_EXCEEDED, overdraft)
    return verdict


def make_room(
    verdict: DeliveryVerdict,
    endpoint: str,
    pending: Sequence[tuple[str, int]],
    breakers: CircuitBreakers,
) -> list[int]:
    """Return the positions in `pending` (sender, bytes; oldest first) to evict for an admitted
    delivery.

    If even all of `pending` is not enough, nothing is evicted and `verdict` becomes a rejection:
    the rest of the mailbox is leased, and leased messages are not evicted.
    """
    victims = choose_victims(pending, verdict.evict_bytes)
    if not victims:
        if verdict.probe:
            breakers.release_probe(endpoint)
            verdict.probe = False
        _reject(verdict, Reason.BACKPRESSURE, INBOX_LEASED_TEXT)
    return victims


def _fits_quota(
    arrival: Arrival, mailbox: Occupancy, settings: Settings, verdict: DeliveryVerdict
) -> bool:
    qos, size = settings.qos, arrival.size
    if mailbox.bytes + size > qos.inbox_max_bytes:
        if qos.overflow == "reject" or size > qos.inbox_max_bytes:
            full = f"backpressure: inbox bytes full ({mailbox.bytes}/{qos.inbox_max_bytes})"
            _reject(verdict, Reason.BACKPRESSURE, full)
            return False
        verdict.evict_bytes = mailbox.bytes + size - qos.inbox_max_bytes
    verdict.quota_count, verdict.quota_bytes = mailbox.held_by(arrival.sender)
    limits = qos.limits(arrival.tier)
    if not within_quota(verdict.quota_count, verdict.quota_bytes, size, limits):
        _reject(verdict, Reason.QUOTA_EXCEEDED, QUOTA_EXCEEDED_TEXT)
        return False
    return True


def _reject(verdict: DeliveryVerdict, reason: Reason, detail: str) -> DeliveryVerdict:
    verdict.reason = reason
    verdict.detail = detail
    verdict.evict_bytes = 0
    return verdict


_UNLIMITED = SenderVerdict(None, "", 0, 0, 0)
