"""The order of checks for one publish. No other module knows it.

    1. subject and sender are valid                                    InvalidSubject
    2. duplicate id of the same sender                                 returns the first result
       (a full disk ends the checks here: nothing can be journaled)    storage_full
    3. rate limit of the sender, once per publish                      admit_sender
    4. a pattern: the sender may use one, and it matches few enough    may_use_patterns,
       endpoints                                                       admit_fan_out
       access rules, per matching endpoint                             AccessDenied
       (another sender's id in the same mailbox)                       InvalidMessage
       (its mailbox cannot be created on the disk)                     mailbox_unavailable
    5. per endpoint: count cap → byte cap (overflow: reject) →
       quota by tier → share of strangers → circuit breaker → budget →
       eviction → store                                                admit_delivery, make_room

The first rejection wins. Nothing before step 4 looks up an endpoint, so a publish over the rate
limit costs the same whatever its subject. A probe slot taken by a delivery that the budget then
rejects, or by a scheduled message, is released. Steps 3 to 5 are here, split as a replay is split:
by sender, then by recipient. Between two partitions, the relay of the sender carries out steps 1 to
4, and that of the recipient step 5, with the endpoints of a pattern and their access rules.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from waypost.policy.backpressure import check_backpressure
from waypost.policy.breakers import CLOSED, CircuitBreakers, CircuitState, Transition
from waypost.policy.budgets import Budget, overdrawn
from waypost.policy.occupancy import Occupancy, choose_victims
from waypost.policy.rate_limits import (
    RateWindows,
    check_rate_limit,
    network_window,
    resolve_limit,
)
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import ANONYMOUS, RELAY
from waypost.policy.settings import Settings
from waypost.policy.tiers import (
    QUOTA_EXCEEDED_TEXT,
    UNKNOWN,
    QosConfig,
    TierLimits,
    within_quota,
)

ANONYMOUS_LIMIT_TEXT = "rate limit exceeded: too many messages from senders without a key"
INBOX_KEPT_TEXT = "backpressure: inbox bytes full, and too few may be evicted for this message"


class Arrival(Protocol):
    """One message arriving at one endpoint. `size` is that of the stored envelope, in bytes.

    `answer`: it answers its parent (`budgets.is_answer`). `due_us` is when it is to be delivered
    (`schedules`); 0 is now.
    """

    id: str
    sender: str
    endpoint: str
    budget: Budget
    answer: bool
    size: int
    tier: int
    due_us: int


class SenderVerdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict of step 3; `reason` is None if the publish passes."""

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
    sender: str, windows: RateWindows, settings: Settings, now_ms: int, network: str = ""
) -> SenderVerdict:
    """Carry out step 3: decide whether `sender` may publish now. The caller counts the publish.

    With `network`, the sender is one of many that share its name.
    """
    config = settings.rate_limit
    if not config.enabled or sender == RELAY:
        return _UNLIMITED
    window_ms = config.window_secs * 1000
    key = network_window(sender, network) if network else sender
    count = windows.count(key, now_ms, window_ms)
    limit = resolve_limit(sender, config) if config.per_sender_overrides else config.max_per_window
    if count < limit and not network:
        return SenderVerdict(None, "", 0, count, limit)
    detail = ""
    if count >= limit:
        detail = check_rate_limit(sender, count, config).reason or ""
    elif network:
        total = windows.count(sender, now_ms, window_ms)
        if total >= config.anonymous_max_per_window:
            key, count, limit = sender, total, config.anonymous_max_per_window
            detail = ANONYMOUS_LIMIT_TEXT
    if not detail:
        return SenderVerdict(None, "", 0, count, limit)
    wait_ms = windows.retry_after_ms(key, now_ms, window_ms, limit)
    return SenderVerdict(Reason.RATE_LIMITED, detail, wait_ms, count, limit)


def may_use_patterns(sender: str, settings: Settings) -> bool:
    """Return whether `sender` may publish to patterns."""
    allowed = settings.pattern_senders
    return allowed == "all" or (allowed == "authenticated" and sender != ANONYMOUS)


NO_PATTERNS_TEXT = (
    "this sender may not publish to patterns: name one recipient, or authenticate (patternSenders)"
)


def admit_fan_out(endpoints: int, settings: Settings) -> str:
    """Return why a publish to this many `endpoints` is rejected; empty if it is not.

    The text does not tell how many there are: senders need not know.
    """
    limit = settings.max_fanout
    if not limit or endpoints <= limit:
        return ""
    return f"more than {limit:,} endpoints match: use a narrower pattern (maxFanout)"


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
    if settings.relay_messages is not None and arrival.sender == RELAY:
        if not _fits_own_room(arrival, mailbox, settings.relay_messages, verdict):
            return verdict
    else:
        if cap.enabled:
            if depth >= cap.max_mailbox_size:
                full = check_backpressure(depth, cap)
                verdict.pressure = full.pressure
                return _reject(verdict, Reason.BACKPRESSURE, full.reason or "")
            verdict.pressure = depth / cap.max_mailbox_size
        if settings.qos.enabled and not _fits_quota(arrival, mailbox, settings, verdict):
            return verdict
    circuit = breakers.check(arrival.endpoint, now_ms, arrival.id)
    if circuit.state is not CLOSED:
        verdict.breaker = circuit.state
        verdict.probe = circuit.probe
        verdict.transition = circuit.transition
    if not circuit.allowed:
        verdict.retry_after_ms = circuit.retry_after_ms
        return _reject(verdict, Reason.CIRCUIT_OPEN, circuit.reason or "")
    due_us = arrival.due_us
    due_ms = max(now_ms, due_us // 1000) if due_us else now_ms
    overdraft = overdrawn(arrival.budget, arrival.endpoint, due_ms, answer=arrival.answer)
    if circuit.probe and (overdraft is not None or due_us):
        breakers.release_probe(arrival.endpoint, arrival.id)
        verdict.probe = False
    if overdraft is not None:
        return _reject(verdict, Reason.BUDGET_EXCEEDED, overdraft)
    return verdict


def make_room(
    verdict: DeliveryVerdict,
    arrival: Arrival,
    pending: Sequence[tuple[str, int]],
    tiers: Mapping[str, int],
    breakers: CircuitBreakers,
    *,
    spare_relay: bool = False,
) -> list[int]:
    """Return the positions in `pending` (sender, bytes; oldest first) to evict for an admitted
    delivery.

    `tiers` are the current ones of the senders in `pending`; empty if tiers are ignored. A message
    of a better known sender is never evicted for that of a worse known one. If the rest is not
    enough, nothing is evicted and `verdict` becomes a rejection. Leased messages are not in
    `pending` and so are never evicted. With `spare_relay`, those of the relay are not either.
    """
    ranked = [(tiers.get(sender, 0), sender, size) for sender, size in pending]
    allowed = [
        at
        for at, (tier, sender, _) in enumerate(ranked)
        if tier <= arrival.tier and not (spare_relay and sender == RELAY)
    ]
    victims = choose_victims([ranked[at] for at in allowed], verdict.evict_bytes)
    if not victims:
        if verdict.probe:
            breakers.release_probe(arrival.endpoint, arrival.id)
            verdict.probe = False
        _reject(verdict, Reason.BACKPRESSURE, INBOX_KEPT_TEXT)
    return [allowed[at] for at in victims]


def keeps_dead_letter(arrival: Arrival, rejected: Occupancy, settings: Settings) -> bool:
    """Return whether `arrival`, rejected with a dead letter, is kept as one.

    `rejected` are the dead letters of the mailbox that were rejected on arrival. With quotas on, a
    sender may have as many of them as messages, and so may all strangers together.
    """
    qos = settings.qos
    if not qos.enabled:
        return True
    count, held_bytes = rejected.held_by(arrival.sender)
    if not within_quota(count, held_bytes, arrival.size, qos.limits(arrival.tier)):
        return False
    return arrival.tier != UNKNOWN or _fits_share(arrival, rejected, qos)


def _fits_own_room(
    arrival: Arrival, mailbox: Occupancy, room: TierLimits, verdict: DeliveryVerdict
) -> bool:
    """Return whether a message of the relay fits into the room that it has beside the caps."""
    verdict.quota_count, verdict.quota_bytes = mailbox.held_by(RELAY)
    count = verdict.quota_count
    if within_quota(count, verdict.quota_bytes, arrival.size, room):
        return True
    full = f"backpressure: {count} messages of the relay are pending in this mailbox"
    _reject(verdict, Reason.BACKPRESSURE, full)
    return False


def _fits_quota(
    arrival: Arrival, mailbox: Occupancy, settings: Settings, verdict: DeliveryVerdict
) -> bool:
    qos, size = settings.qos, arrival.size
    if mailbox.bytes + size > qos.inbox_max_bytes:
        if not _may_evict(arrival, qos):
            full = f"backpressure: inbox bytes full ({mailbox.bytes}/{qos.inbox_max_bytes})"
            _reject(verdict, Reason.BACKPRESSURE, full)
            return False
        verdict.evict_bytes = mailbox.bytes + size - qos.inbox_max_bytes
    count, held_bytes = mailbox.held_by(arrival.sender)
    verdict.quota_count, verdict.quota_bytes = count, held_bytes
    if not within_quota(count, held_bytes, size, qos.limits(arrival.tier)):
        _reject(verdict, Reason.QUOTA_EXCEEDED, QUOTA_EXCEEDED_TEXT)
        return False
    if qos.strangers and arrival.tier == UNKNOWN and not _fits_share(arrival, mailbox, qos):
        _reject(verdict, Reason.QUOTA_EXCEEDED, QUOTA_EXCEEDED_TEXT)
        return False
    return True


def _may_evict(arrival: Arrival, qos: QosConfig) -> bool:
    """Return whether messages may be evicted for `arrival`.

    Not for the relay's own, one of which is sent for each eviction: one must not cause the next.
    """
    if qos.overflow == "reject" or arrival.size > qos.inbox_max_bytes:
        return False
    return qos.overflow == "evict_heaviest" or arrival.sender != RELAY


def _fits_share(arrival: Arrival, mailbox: Occupancy, qos: QosConfig) -> bool:
    """Return whether strangers, in one of their names, may add `arrival` to what they have."""
    if qos.strangers is None:
        return True
    depth, held_bytes = mailbox.strangers_depth, mailbox.strangers_bytes
    return within_quota(depth, held_bytes, arrival.size, qos.strangers)


def _reject(verdict: DeliveryVerdict, reason: Reason, detail: str) -> DeliveryVerdict:
    verdict.reason = reason
    verdict.detail = detail
    verdict.evict_bytes = 0
    return verdict


_UNLIMITED = SenderVerdict(None, "", 0, 0, 0)
