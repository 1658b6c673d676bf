"""One inbox under replayed settings: the policy's own code, applied row by row.

Rule 1  History decides when a message leaves the mailbox. Evictions are the exception: the replay
        makes its own.
Rule 2  A counterfactual message is one whose end history cannot know: history rejected it, or
        evicted it and the replay did not. It leaves with the next acknowledgement in the inbox,
        which counts as its success, or when its time to live is over. While it is scheduled, it
        does not leave: it is due at its time.
Rule 3  An event of a message that the replayed mailbox does not hold changes nothing.
Rule 4  The breaker counts what the relay reported to it at that time (`counts_deliveries`). A slot
        is its message's, as in the relay: whatever ends the delivery of the message frees it.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from operator import itemgetter
from typing import Any

from waypost.pipeline.replay.settings_timeline import SettingsInForce
from waypost.policy.admission import DeliveryVerdict, admit_delivery, make_room
from waypost.policy.breakers import CircuitBreakers, DeliveryOutcome
from waypost.policy.budgets import Budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.schedules import is_ahead
from waypost.policy.tiers import UNKNOWN, sender_tier


class InboxEvent(IntEnum):
    """The kind of a row. The first three are arrivals, by their decision in history."""

    ACCEPTED = 0
    REJECTED = 1
    DEAD_LETTERED = 2
    """Rejected, and stored as a dead letter."""
    RATE_LIMITED = 3
    """Rate-limited in the replay, although history stored it."""
    LEASED = 4
    ACKED = 5
    RETURNED = 6
    """Returned to the mailbox because its delivery failed."""
    RELEASED = 7
    """Returned to the mailbox without a verdict."""
    HANDLER_FAILED = 8
    DELIVERY_FAILED = 9
    """Dead-lettered after too many deliveries to other consumers than handlers."""
    REMOVED = 10
    """Left the mailbox without success or failure: expired, or dead-lettered otherwise."""
    EVICTED = 11
    REDRIVEN = 12
    BREAKER_RESET = 13
    CONTACTED = 14
    """The recipient wrote to a sender, which is the key of the row. Sorts after an arrival that is
    the same event: a message to oneself."""
    QUEUED = 15
    """A scheduled message that was due."""


LAST_ARRIVAL = int(InboxEvent.DEAD_LETTERED)
_ACCEPTED, _REJECTED = int(InboxEvent.ACCEPTED), int(InboxEvent.REJECTED)
_RATE_LIMITED = int(InboxEvent.RATE_LIMITED)
_NEVER_MS = 1 << 62

_ENDPOINT = "endpoint"
"""Placeholder name for breakers and budgets: each replayed inbox has exactly one endpoint."""

_SUFFICIENT = Budget(ttl=_NEVER_MS)
"""Stands for every budget that cannot be exceeded."""

Row = tuple[Any, ...]
"""seq, at_ms, event, size, tier, ttl_ms, due_ms, message_key, sender, deferred, budget (None if it
cannot be exceeded)."""


class ReplayMessage:
    """A message in the replayed mailbox. `ttl_ms` is the time it expires at, `tier` the tier of
    its sender on arrival, `due_ms` the time it is scheduled for; 0 if it is in the queue."""

    __slots__ = ("counterfactual", "due_ms", "leased", "sender", "size", "tier", "ttl_ms")

    def __init__(self, sender: str, size: int, tier: int, ttl_ms: int, due_ms: int) -> None:
        self.sender = sender
        self.due_ms = due_ms
        self.size = size
        self.tier = tier
        self.ttl_ms = ttl_ms
        self.leased = False
        self.counterfactual = False


class _Arrival:
    """The arrival to decide, reused for all rows."""

    __slots__ = ("answer", "budget", "due_us", "endpoint", "id", "sender", "size", "tier")

    def __init__(self) -> None:
        self.id = ""
        self.endpoint = _ENDPOINT
        self.answer = False  # `cycle` of a recorded budget accounts for it
        self.sender = ""
        self.budget = _SUFFICIENT
        self.size = 0
        self.tier = 1
        self.due_us = 0


class ReplayInbox:
    """The mailbox and the breaker of one endpoint. `messages` are in the order of the mailbox."""

    def __init__(self, in_force: SettingsInForce, relay: str) -> None:
        self._in_force = in_force
        in_force.start(relay)
        self.occupancy = Occupancy()
        self.messages: dict[str, ReplayMessage] = {}
        self._counterfactual: dict[str, ReplayMessage] = {}
        self._next_expiry_ms = _NEVER_MS
        """No counterfactual message expires before this."""
        self._next_due_ms = _NEVER_MS
        """No counterfactual message is due before this."""
        self._deferred = False
        """Whether a consumer was there when history last accepted a message."""
        self._recorded: dict[str, ReplayMessage] = {}
        """The messages that history stored and may redrive, whether the replay has them or not."""
        self._contacted_ms: dict[str, int] = {}
        """When the recipient last wrote to each sender; filled only if evictions depend on it."""
        self._arrival = _Arrival()
        self._breakers = CircuitBreakers()
        self._enter_period()
        self._handlers = {
            InboxEvent.LEASED: self._lease,
            InboxEvent.ACKED: self._ack,
            InboxEvent.RETURNED: self._return,
            InboxEvent.RELEASED: self._release,
            InboxEvent.HANDLER_FAILED: self._fail,
            InboxEvent.DELIVERY_FAILED: self._fail_delivery,
            InboxEvent.REMOVED: self._discard,
            InboxEvent.EVICTED: self._keep_evicted,
            InboxEvent.REDRIVEN: self._redrive,
            InboxEvent.BREAKER_RESET: self._reset_breaker,
            InboxEvent.CONTACTED: self._contact,
            InboxEvent.QUEUED: self._queue,
        }

    def replay(self, rows: Iterable[Row]) -> Iterator[str]:
        """Apply rows in order. Yield for each arrival why it is rejected, or "" if accepted."""
        handlers, in_force = self._handlers, self._in_force
        for row in rows:
            seq, at_ms, event, size, tier, ttl_ms, due_ms, key, sender, _, _ = row
            if seq >= in_force.until_seq:
                self._enter_period(seq)
            if event <= LAST_ARRIVAL:
                yield self._arrive(row)
            elif event == _RATE_LIMITED:
                self._recorded[key] = ReplayMessage(sender, size, tier, ttl_ms, due_ms)
            else:
                handlers[event](key, at_ms)

    def _enter_period(self, seq: int = 0) -> None:
        restarted = self._in_force.advance(seq)
        settings = self._in_force.settings
        config, idle_ms = settings.circuit_breaker, settings.housekeeping.breaker_idle_ms
        if restarted:
            self._breakers = CircuitBreakers()
        self._breakers.update_config(config, idle_ms)

    def _arrive(self, row: Row) -> str:
        _, at_ms, event, size, tier, ttl_ms, due_ms, key, sender, deferred, budget = row
        arrival, settings = self._arrival, self._in_force.settings
        if event == _ACCEPTED:
            self._deferred = deferred
        if not settings.qos.enabled:
            tier = UNKNOWN
        if event != _REJECTED:
            self._recorded[key] = ReplayMessage(sender, size, tier, ttl_ms, due_ms)
        if at_ms > self._next_expiry_ms:
            self._expire_counterfactual(at_ms)
        if at_ms >= self._next_due_ms:
            self._queue_counterfactual(at_ms)
        arrival.id, arrival.sender, arrival.size, arrival.tier = key, sender, size, tier
        arrival.due_us = due_ms * 1000
        arrival.budget = _SUFFICIENT if budget is None else self._budget(budget, ttl_ms)
        verdict = admit_delivery(arrival, self.occupancy, self._breakers, settings, at_ms)
        if verdict.evict_bytes:
            self._make_room(verdict, at_ms)
        if verdict.reason is not None:
            return verdict.reason.value
        message = ReplayMessage(sender, size, tier, ttl_ms, due_ms)
        self._add(key, message)
        if event != _ACCEPTED:
            self._mark_counterfactual(key, message)
        counts = verdict.probe or not self._in_force.counts_deliveries
        if not self._deferred and counts and self._breakers:
            self._settle(key, DeliveryOutcome.SUCCESS, at_ms)
        return ""

    def _budget(self, recorded: dict[str, Any], ttl_ms: int) -> Budget:
        max_hops = recorded["max_hops"]
        new, old = self._in_force.settings.max_hops, self._in_force.recorded_max_hops
        if new != old:
            max_hops = new if max_hops == old else min(new, max_hops)
        chain = (_ENDPOINT,) if recorded["cycle"] else ()
        return Budget(
            hop_count=recorded["hop_count"],
            max_hops=max_hops,
            ancestor_chain=chain,
            ttl=ttl_ms,
            call_budget_remaining=recorded["calls"],
        )

    def _make_room(self, verdict: DeliveryVerdict, at_ms: int) -> None:
        pending = [(key, one) for key, one in self.messages.items() if not one.leased]
        pending.sort(key=lambda item: item[1].due_ms > 0)  # scheduled ones come after the queue
        sizes = [(message.sender, message.size) for _, message in pending]
        qos, tiers = self._in_force.settings.qos, dict[str, int]()
        if qos.overflow == "evict_least_known":
            for sender, _ in sizes:
                contacted_ms = self._contacted_ms.get(sender)
                window_ms = qos.bidirectional_window_ms
                tiers[sender] = sender_tier(sender, at_ms, contacted_ms, at_ms, window_ms)
        spare_relay = self._in_force.settings.relay_messages is not None
        for position in make_room(
            verdict, self._arrival, sizes, tiers, self._breakers, spare_relay=spare_relay
        ):
            self._discard(pending[position][0])

    # Recorded events of messages

    def _lease(self, key: str, at_ms: int) -> None:
        message = self.messages.get(key)
        if message is not None:
            message.leased = True

    def _return(
        self, key: str, at_ms: int, outcome: DeliveryOutcome = DeliveryOutcome.FAILURE
    ) -> None:
        message = self.messages.get(key)
        if message is not None:
            message.leased = False
            if self._in_force.counts_deliveries:
                self._settle(key, outcome, at_ms)

    def _release(self, key: str, at_ms: int) -> None:
        self._return(key, at_ms, DeliveryOutcome.NO_VERDICT)

    def _ack(self, key: str, at_ms: int) -> None:
        self._recorded.pop(key, None)
        if self._remove(key) is not None and self._breakers:
            self._settle(key, DeliveryOutcome.SUCCESS, at_ms)
        if self._counterfactual:
            self._ack_counterfactual(at_ms)

    def _fail(self, key: str, at_ms: int) -> None:
        if self._remove(key) is not None:
            self._settle(key, DeliveryOutcome.FAILURE, at_ms)

    def _fail_delivery(self, key: str, at_ms: int) -> None:
        if self._in_force.counts_deliveries:
            self._fail(key, at_ms)
        else:
            self._discard(key, at_ms)

    def _keep_evicted(self, key: str, at_ms: int) -> None:
        message = self.messages.get(key)
        if message is not None:
            message.leased = False
            self._mark_counterfactual(key, message)

    def _redrive(self, key: str, at_ms: int) -> None:
        recorded = self._recorded.get(key)
        if recorded is not None:
            sender, size, tier = recorded.sender, recorded.size, recorded.tier
            due_ms = recorded.due_ms if is_ahead(recorded.due_ms * 1000, at_ms) else 0
            self._add(key, ReplayMessage(sender, size, tier, recorded.ttl_ms, due_ms))

    def _queue(self, key: str, at_ms: int = 0) -> None:
        """Put a scheduled message at the end of the queue."""
        message = self.messages.pop(key, None)
        if message is not None:
            message.due_ms = 0
            self.messages[key] = message

    def _reset_breaker(self, key: str, at_ms: int) -> None:
        self._breakers.reset(_ENDPOINT)

    def _contact(self, sender: str, at_ms: int) -> None:
        self._contacted_ms[sender] = max(at_ms, self._contacted_ms.get(sender, at_ms))

    # The mailbox

    def _add(self, key: str, message: ReplayMessage) -> None:
        if key in self.messages:
            self._remove(key)  # an id occurs once in a mailbox
        self.messages[key] = message
        self.occupancy.add(message.sender, message.size, message.tier)

    def _remove(self, key: str) -> ReplayMessage | None:
        message = self.messages.pop(key, None)
        if message is not None:
            self.occupancy.remove_all((message,))
            if message.counterfactual:
                del self._counterfactual[key]
        return message

    def _discard(self, key: str, at_ms: int = 0) -> None:
        """Remove a message without an outcome for the breaker."""
        if self._remove(key) is not None:
            self._settle(key, DeliveryOutcome.NO_VERDICT, at_ms)

    def _settle(self, key: str, outcome: DeliveryOutcome, at_ms: int) -> None:
        self._breakers.settle(_ENDPOINT, key, outcome, at_ms)

    # Counterfactual messages

    def _mark_counterfactual(self, key: str, message: ReplayMessage) -> None:
        message.counterfactual = True
        self._counterfactual[key] = message
        self._next_expiry_ms = min(self._next_expiry_ms, message.ttl_ms)
        if message.due_ms:
            self._next_due_ms = min(self._next_due_ms, message.due_ms)

    def _queue_counterfactual(self, at_ms: int) -> None:
        """Queue the counterfactual messages that are due, in the order in which they are."""
        scheduled = [
            (one.due_ms, key)
            for key, one in self.messages.items()
            if one.counterfactual and one.due_ms
        ]
        for _, key in sorted((one for one in scheduled if one[0] <= at_ms), key=itemgetter(0)):
            self._queue(key)
        self._next_due_ms = min((one for one, _ in scheduled if one > at_ms), default=_NEVER_MS)

    def _expire_counterfactual(self, at_ms: int) -> None:
        for key in [key for key, one in self._counterfactual.items() if one.ttl_ms < at_ms]:
            self._discard(key)
        left = (message.ttl_ms for message in self._counterfactual.values())
        self._next_expiry_ms = min(left, default=_NEVER_MS)

    def _ack_counterfactual(self, at_ms: int) -> None:
        if at_ms >= self._next_due_ms:
            self._queue_counterfactual(at_ms)
        for key, message in [one for one in self.messages.items() if one[1].counterfactual]:
            if message.due_ms:
                continue
            if message.ttl_ms < at_ms:
                self._discard(key)
            else:
                self._remove(key)
                self._settle(key, DeliveryOutcome.SUCCESS, at_ms)
        left = (message.ttl_ms for message in self._counterfactual.values())
        self._next_expiry_ms = min(left, default=_NEVER_MS)
