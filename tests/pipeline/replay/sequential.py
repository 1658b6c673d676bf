"""The sequential replay: one relay's events in order, one at a time, with the policy's functions.

It is the oracle of the replay in Spark. The rules are those of docs/backtest.md, in the same order.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from waypost.policy.admission import admit_delivery, admit_fan_out, admit_sender
from waypost.policy.breakers import DELIVERIES, CircuitBreakers, DeliveryOutcome, Occasion
from waypost.policy.budgets import Budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.rate_limits import RateWindows, network_window
from waypost.policy.reasons import Reason
from waypost.policy.settings import Settings, merge_settings
from waypost.policy.subjects import is_literal
from waypost.policy.tiers import sender_tier
from waypost.wire import events as wire

NOT_REPLAYED = {Reason.ACCESS_DENIED, Reason.STORAGE_FULL, Reason.MAILBOX_UNAVAILABLE}


class Decision(msgspec.Struct, frozen=True):
    """The recorded and the replayed decision about one arrival; accepted if the reason is empty."""

    seq: int
    sender: str
    endpoint: str
    tier: int
    old_reason: str
    new_reason: str


class ReplayMessage(msgspec.Struct):
    """A message in a mailbox. `counterfactual`: history does not know when it would have left.

    `due_ms` is when a scheduled message is due; 0 once it is in the queue.
    """

    sender: str
    size: int
    ttl: int
    tier: int
    due_ms: int = 0
    leased: bool = False
    counterfactual: bool = False


class Arrival(msgspec.Struct):
    """The argument of `admit_delivery`."""

    id: str
    sender: str
    endpoint: str
    budget: Budget
    size: int
    tier: int
    answer: bool
    due_us: int


class Inbox:
    """One mailbox. `messages` are in the order of the mailbox."""

    def __init__(self) -> None:
        self.occupancy = Occupancy()
        self.messages: dict[str, ReplayMessage] = {}
        self.deferred = False

    def add(self, key: str, message: ReplayMessage) -> None:
        self.remove(key)
        self.messages[key] = message
        self.occupancy.add(message.sender, message.size, message.tier)

    def remove(self, key: str) -> ReplayMessage | None:
        message = self.messages.pop(key, None)
        if message is not None:
            self.occupancy.remove_all((message,))
        return message

    def queue(self, key: str) -> None:
        message = self.messages.pop(key, None)
        if message is not None:
            message.due_ms = 0
            self.messages[key] = message

    def queue_counterfactual(self, at_ms: int) -> None:
        due = [key for key in self.counterfactual() if 0 < self.messages[key].due_ms <= at_ms]
        for key in sorted(due, key=lambda key: self.messages[key].due_ms):
            self.queue(key)

    def counterfactual(self) -> list[str]:
        return [key for key, one in self.messages.items() if one.counterfactual]


class SequentialReplay:
    """One relay under replayed settings."""

    def __init__(self, events: Sequence[wire.AnyEvent], changes: bytes | None) -> None:
        self.events = events
        self.changes = changes
        kinds = (wire.Accepted, wire.Rejected, wire.EndpointChanged)
        self.known = {e.endpoint for e in events if isinstance(e, kinds) and e.endpoint}
        self.recorded = Settings()
        self.settings = Settings()
        self.counts_deliveries = False
        if changes is not None:
            self.settings = merge_settings(self.settings, changes)
        self.windows = RateWindows()
        self.passed: dict[str, tuple[str, bool]] = {}
        """The last publish of each sender: its id, and whether the sender's rate limit let it pass.
        Notices of the relay may be recorded between its parts."""
        self.last_seen: dict[tuple[str, str], int] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.breakers = self._new_breakers()
        self.arrived: dict[tuple[str, str], ReplayMessage] = {}

    def decisions(self) -> Iterator[Decision]:
        for event in self.events:
            match event:
                case wire.Accepted() | wire.Rejected():
                    if isinstance(event, wire.Accepted) or not event.since_us:
                        yield self._arrival(event)
                case wire.SettingsChanged():
                    self._settings_changed(event)
                case wire.BreakerMoved():
                    if event.occasion in {Occasion.RESET, Occasion.IDLE}:
                        self.breakers.reset(event.endpoint)
                case wire.PairSeen():
                    pair = (event.sender, event.endpoint)
                    self.last_seen[pair] = max(event.seen_ms, self.last_seen.get(pair, 0))
                case wire.EndpointChanged() | wire.SessionChanged() | wire.RulesChanged():
                    pass
                case wire.SignedCheckpoint():
                    pass
                case _:
                    self._message_event(event, self.inboxes.setdefault(event.endpoint, Inbox()))

    def _new_breakers(self) -> CircuitBreakers:
        config = self.settings
        return CircuitBreakers(config.circuit_breaker, config.housekeeping.breaker_idle_ms)

    def _settings_changed(self, event: wire.SettingsChanged) -> None:
        self.recorded = merge_settings(Settings(), msgspec.json.encode(event.settings))
        self.settings = self.recorded
        if self.changes is not None:
            self.settings = merge_settings(self.recorded, self.changes)
        if event.cause == "start":
            self.breakers = self._new_breakers()
        self.counts_deliveries = event.breakers_count == DELIVERIES
        idle_ms = self.settings.housekeeping.breaker_idle_ms
        self.breakers.update_config(self.settings.circuit_breaker, idle_ms)

    def _arrival(self, event: wire.Accepted | wire.Rejected) -> Decision:
        old = event.reason.value if isinstance(event, wire.Rejected) else ""
        endpoint, tier, new = event.endpoint, event.tier, old
        if old not in NOT_REPLAYED:
            endpoint = self._endpoint(event, old)
            new = "" if self._sender_passes(event) else "rate_limited"
            wide = old == "fanout_exceeded" or (
                old != "rate_limited" and admit_fan_out(event.parts, self.settings)
            )
            if wide and not new:
                new = "fanout_exceeded"
            if not new and endpoint:
                at_ms = event.at_us // 1000
                if self.settings.qos.enabled:
                    received = self.last_seen.get((endpoint, event.sender))
                    window_ms = self.settings.qos.bidirectional_window_ms
                    tier = int(sender_tier(event.sender, at_ms, received, at_ms, window_ms))
                self.last_seen[event.sender, endpoint] = at_ms
                new = self._deliver(event, endpoint, tier, at_ms)
        if isinstance(event, wire.Accepted) or (event.reason == "budget_exceeded" and event.kept):
            counted = tier if self.settings.qos.enabled or new == "rate_limited" else 1
            self.arrived[event.endpoint, event.id] = ReplayMessage(
                event.sender, event.size, event.budget.ttl, counted, event.due_us // 1000
            )
        arrived = "" if old == new == "rate_limited" else endpoint
        return Decision(event.seq, event.sender, arrived, tier, old, new)

    def _endpoint(self, event: wire.Accepted | wire.Rejected, old: str) -> str:
        if old != "rate_limited":
            return event.endpoint
        return event.subject if is_literal(event.subject) and event.subject in self.known else ""

    def _sender_passes(self, event: wire.Accepted | wire.Rejected) -> bool:
        last_id, passes = self.passed.get(event.sender, ("", False))
        if event.part == 0 or event.id != last_id:
            at_ms = event.at_us // 1000
            network = event.network
            verdict = admit_sender(event.sender, self.windows, self.settings, at_ms, network)
            passes = verdict.reason is None
            if passes:
                self.windows.record(event.sender, at_ms)
                if network:
                    self.windows.record(network_window(event.sender, network), at_ms)
        self.passed[event.sender] = (event.id, passes)
        return passes

    def _deliver(
        self, event: wire.Accepted | wire.Rejected, endpoint: str, tier: int, at_ms: int
    ) -> str:
        inbox = self.inboxes.setdefault(endpoint, Inbox())
        accepted = isinstance(event, wire.Accepted)
        if accepted:
            inbox.deferred = event.deferred
        for key in [k for k in inbox.counterfactual() if inbox.messages[k].ttl < at_ms]:
            self._discard(inbox, key, endpoint)
        inbox.queue_counterfactual(at_ms)
        key = event.id or f" {event.seq}"
        budget = self._budget(event.budget)
        arrival = Arrival(
            key, event.sender, endpoint, budget, event.size, tier, event.answer, event.due_us
        )
        verdict = admit_delivery(arrival, inbox.occupancy, self.breakers, self.settings, at_ms)
        if verdict.evict_bytes and not self._make_room(inbox, arrival, verdict.evict_bytes, at_ms):
            if verdict.probe:
                self.breakers.release_probe(endpoint, key)
            return "backpressure"
        if verdict.reason is not None:
            return verdict.reason.value
        counted = tier if self.settings.qos.enabled else 1
        message = ReplayMessage(
            event.sender,
            event.size,
            event.budget.ttl,
            counted,
            event.due_us // 1000,
            counterfactual=not accepted,
        )
        inbox.add(key, message)
        if not inbox.deferred and (verdict.probe or not self.counts_deliveries):
            self.breakers.settle(endpoint, key, DeliveryOutcome.SUCCESS, at_ms)
        return ""

    def _budget(self, budget: Budget) -> Budget:
        new, old = self.settings.max_hops, self.recorded.max_hops
        if new == old:
            return budget
        hops = new if budget.max_hops == old else min(new, budget.max_hops)
        return msgspec.structs.replace(budget, max_hops=hops)

    def _make_room(self, inbox: Inbox, arrival: Arrival, needed_bytes: int, at_ms: int) -> bool:
        """Evict one message after the other; none if that would not be enough."""
        pending = [(key, one) for key, one in inbox.messages.items() if not one.leased]
        queued = {key: one for key, one in pending if not one.due_ms}
        left = queued | {key: one for key, one in pending if one.due_ms}
        if self.settings.relay_messages is not None:
            left = {key: one for key, one in left.items() if one.sender != "_relay"}
        if self.settings.qos.overflow == "evict_least_known":
            tiers = {key: self._tier(one.sender, arrival, at_ms) for key, one in left.items()}
            left = {key: one for key, one in left.items() if tiers[key] <= arrival.tier}
        else:
            tiers = dict.fromkeys(left, 0)
        victims: list[str] = []
        while needed_bytes > 0 and left:
            lowest = min(tiers[key] for key in left)
            held: dict[str, int] = {}
            for key, one in left.items():
                if tiers[key] == lowest:
                    held[one.sender] = held.get(one.sender, 0) + one.size
            heaviest = min(held, key=lambda sender: (-held[sender], sender))
            victim = next(
                key for key, one in left.items() if one.sender == heaviest and tiers[key] == lowest
            )
            needed_bytes -= left.pop(victim).size
            victims.append(victim)
        if needed_bytes > 0:
            return False
        for key in victims:
            self._discard(inbox, key, arrival.endpoint)
        return True

    def _tier(self, sender: str, arrival: Arrival, at_ms: int) -> int:
        received = self.last_seen.get((arrival.endpoint, sender))
        if sender == arrival.sender == arrival.endpoint:
            return arrival.tier  # the message to itself being decided is already recorded
        window_ms = self.settings.qos.bidirectional_window_ms
        return int(sender_tier(sender, at_ms, received, at_ms, window_ms))

    def _message_event(self, event: wire.MailboxEvent, inbox: Inbox) -> None:
        at_ms, key, endpoint = event.at_us // 1000, event.id, event.endpoint
        message = inbox.messages.get(key)
        match event:
            case wire.Acked():
                self._ack(inbox, key, endpoint, at_ms)
                self._ack_counterfactual(inbox, endpoint, at_ms)
            case wire.Failed(uncounted=False) if event.via == "handler" or (
                self.counts_deliveries and event.via != "restart"
            ):
                if inbox.remove(key):
                    self.breakers.settle(endpoint, key, DeliveryOutcome.FAILURE, at_ms)
            case wire.Failed() | wire.Expired(was="pending") | wire.Cancelled():
                self._discard(inbox, key, endpoint)
            case wire.Redriven():
                arrived = self.arrived.get((endpoint, key))
                if arrived is not None:
                    due_ms = arrived.due_ms if arrived.due_ms > at_ms else 0
                    inbox.add(key, msgspec.structs.replace(arrived, due_ms=due_ms))
            case wire.Queued():
                inbox.queue(key)
            case wire.Returned() if message:
                message.leased = False
                if self.counts_deliveries:
                    outcome = (
                        DeliveryOutcome.NO_VERDICT if event.uncounted else DeliveryOutcome.FAILURE
                    )
                    self.breakers.settle(endpoint, key, outcome, at_ms)
            case wire.Leased() | wire.Evicted() if message:
                message.leased = isinstance(event, wire.Leased)
                message.counterfactual = message.counterfactual or isinstance(event, wire.Evicted)

    def _ack_counterfactual(self, inbox: Inbox, endpoint: str, at_ms: int) -> None:
        inbox.queue_counterfactual(at_ms)
        for key in inbox.counterfactual():
            if inbox.messages[key].due_ms:
                continue
            if inbox.messages[key].ttl < at_ms:
                self._discard(inbox, key, endpoint)
            else:
                self._ack(inbox, key, endpoint, at_ms)

    def _ack(self, inbox: Inbox, key: str, endpoint: str, at_ms: int) -> None:
        if inbox.remove(key):
            self.breakers.settle(endpoint, key, DeliveryOutcome.SUCCESS, at_ms)

    def _discard(self, inbox: Inbox, key: str, endpoint: str) -> None:
        if inbox.remove(key):
            self.breakers.settle(endpoint, key, DeliveryOutcome.NO_VERDICT, 0)


def replay(events: Sequence[wire.AnyEvent], changes: bytes | None = None) -> list[Decision]:
    """Decide every arrival of one relay again."""
    return list(SequentialReplay(events, changes).decisions())


def read_journal(data: Path) -> list[wire.AnyEvent]:
    """Read all events of a data directory whose journal is sealed."""
    return [
        event
        for path in sorted((data / "journal").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if not line.startswith(wire.COMMIT_PREFIX)
        for event in wire.split(wire.decode_event(line))
    ]
