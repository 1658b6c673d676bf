"""A model of a relay in plain lists, fed only with the results that its callers get."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.plain_journal import Event, hash_of
from tests.model_based.recount import RELAY
from waypost import (
    Envelope,
    InvalidMessage,
    PublishResult,
    Reason,
    RedeliveryConfig,
    Rejection,
    Signal,
)
from waypost.policy.redelivery import decide_redelivery


@dataclass
class ModelMessage:
    """One message in one mailbox; `until_us` is the end of its lease, 0 while pending.

    `deliveries` counts its leases, except those that a restart ended. Until `due_us`, it is
    `scheduled`.
    """

    id: str
    sender: str
    ttl_ms: int
    until_us: int = 0
    not_before_us: int = 0
    deliveries: int = 0
    due_us: int = 0
    scheduled: bool = False

    def alive(self, now_us: int) -> bool:
        """Return whether it must still exist; an expired one may be removed unless leased."""
        return bool(self.until_us) or now_us // 1000 <= self.ttl_ms

    def ready(self, now_us: int) -> bool:
        """Return whether it can be delivered now."""
        waits = self.until_us or self.scheduled or self.not_before_us > now_us
        return not waits and self.alive(now_us)


@dataclass
class Model:
    """Mailboxes in order, dead letters, handlers, and first results by sender and chosen id."""

    registered: dict[str, None] = field(default_factory=dict)
    boxes: dict[str, list[ModelMessage]] = field(default_factory=dict)
    dead: dict[str, dict[str, ModelMessage]] = field(default_factory=dict)
    handlers: dict[int, tuple[str, bool]] = field(default_factory=dict)
    handled: list[tuple[str, str]] = field(default_factory=list)
    first: dict[tuple[str, str], tuple[int, PublishResult]] = field(default_factory=dict)
    evicted: list[tuple[str, str]] = field(default_factory=list)
    redelivery: RedeliveryConfig = field(default_factory=RedeliveryConfig)

    def box(self, endpoint: str) -> list[ModelMessage]:
        return self.boxes.setdefault(endpoint, [])

    def recipients(self, subject: str) -> list[str]:
        """Return the registered endpoints that match `subject`."""
        return [one for one in self.registered if covers(subject, one)]

    def find(self, endpoint: str, message_id: str) -> ModelMessage | None:
        return next((one for one in self.box(endpoint) if one.id == message_id), None)

    def published(
        self,
        result: PublishResult,
        subject: str,
        sender: str,
        ttl_ms: int,
        journal: Sequence[Event] = (),
        due_us: int = 0,
    ) -> None:
        """Follow the result of a publish; whether it kept a dead letter, only `journal` tells."""
        rejected = {one.endpoint_hash: one for one in result.rejected}
        if not result.message_id:
            assert list(rejected) == [""], result
            return
        recipients = self.recipients(subject)
        assert len(recipients) == result.delivered_to + len(rejected), result
        kept = {
            event.get("endpoint"): event.get("kept", True)  # the last of several attempts
            for event in journal
            if event["kind"] in ("accepted", "rejected") and event["id"] == result.message_id
        }
        for endpoint in recipients:
            if kept.get(endpoint, True):
                message = ModelMessage(result.message_id, sender, ttl_ms, due_us=due_us)
                message.scheduled = due_us > 0
                self._arrived(endpoint, message, rejected)

    def _arrived(
        self, endpoint: str, message: ModelMessage, rejected: dict[str, Rejection]
    ) -> None:
        rejection = rejected.get(hash_of(endpoint))
        if rejection is None:
            self.box(endpoint).append(message)
            self.dead.get(endpoint, {}).pop(message.id, None)
        elif rejection.reason is Reason.BUDGET_EXCEEDED:
            self.dead.setdefault(endpoint, {})[message.id] = message

    def expected_again(
        self, sender: str, message_id: str, subject: str, now_us: int, window_us: int
    ) -> PublishResult | None:
        """Return the expected result of publishing an id again; None if it counts as new.

        Raise `InvalidMessage` if the relay must.
        """
        known = self.first.get((sender, message_id))
        if known is not None and known[0] >= now_us - window_us and known[1].delivered_to:
            return known[1]
        recipients = self.recipients(subject)
        live = [self.find(one, message_id) for one in recipients]
        dead = [self.dead.get(one, {}).get(message_id) for one in recipients]
        if any(message is not None and message.sender != sender for message in live + dead):
            raise InvalidMessage(f"message id {message_id} is taken: choose another")
        holders = sum(message is not None for message in live)
        return PublishResult(message_id=message_id, delivered_to=holders) if holders else None

    def leased(self, endpoint: str, ids: list[str], limit: int, now_us: int, until_us: int) -> None:
        """Follow a lease: the first messages that are ready, in order."""
        ready = [one for one in self.box(endpoint) if one.ready(now_us)]
        assert ids == [one.id for one in ready[:limit]]
        for message in ready[:limit]:
            message.until_us = until_us
            message.deliveries += 1

    def acked(self, endpoint: str, ids: list[str]) -> int:
        """Return how many of `ids` existed."""
        before = self.box(endpoint)
        self.boxes[endpoint] = [one for one in before if one.id not in ids]
        return len(before) - len(self.boxes[endpoint])

    def nacked(self, endpoint: str, ids: list[str], now_us: int, delay_us: int) -> int:
        found = [one for one in self.box(endpoint) if one.id in ids and one.until_us]
        for message in found:
            self._failed(endpoint, message, now_us, delay_us)
        return len(found)

    def _failed(self, endpoint: str, message: ModelMessage, now_us: int, delay_us: int) -> None:
        """Follow a failed delivery: it is due again later, or a dead letter."""
        verdict = decide_redelivery(message.id, message.deliveries, self.redelivery)
        if verdict.reason is not None:
            self.dead_letter(endpoint, message.id)
            return
        delay_us = max(delay_us, verdict.delay_ms * 1000)
        message.until_us, message.not_before_us = 0, now_us + delay_us if delay_us else 0

    def signalled(self, subject: str, signal: Signal) -> None:
        """Follow an eviction; its publish may not have returned yet."""
        if signal.state == "evicted":
            self.evicted.append((signal.endpoint_subject, signal.data["message_id"]))

    def notified(self, events: Sequence[Event], known: int) -> None:
        """Follow notices of evictions, which no result mentions, among `events[known:]`."""
        order = {
            (event["endpoint"], event["id"]): event["seq"]
            for event in events
            if event["kind"] in ("accepted", "redriven", "queued") and event.get("endpoint")
        }
        for event in events[known:]:
            if event["kind"] == "accepted" and event["sender"] == RELAY:
                endpoint, box = event["endpoint"], self.box(event["endpoint"])
                notice = ModelMessage(event["id"], RELAY, event["budget"]["ttl"])
                later = [order[endpoint, one.id] > event["seq"] for one in box]
                box.insert(later.index(True) if True in later else len(box), notice)

    def dead_letter(self, endpoint: str, message_id: str) -> None:
        message = self.find(endpoint, message_id)
        assert message is not None
        self.box(endpoint).remove(message)
        message.until_us = message.not_before_us = 0
        self.dead.setdefault(endpoint, {})[message_id] = message

    def redriven(self, endpoint: str, message_id: str, now_us: int) -> None:
        message = self.dead[endpoint].pop(message_id)
        message.deliveries = 0
        message.scheduled = message.due_us // 1000 > now_us // 1000
        self.box(endpoint).append(message)

    def scheduled(self) -> list[tuple[int, str, str]]:
        """Return time, endpoint and id of all scheduled messages."""
        return [
            (one.due_us, endpoint, one.id)
            for endpoint, box in self.boxes.items()
            for one in box
            if one.scheduled
        ]

    def cancelled(self, message_id: str, sender: str) -> bool:
        """Remove the scheduled messages of this id and sender; return whether there were any."""
        found = False
        for box in self.boxes.values():
            for one in list(box):
                if one.scheduled and (one.id, one.sender) == (message_id, sender):
                    box.remove(one)
                    found = True
        return found

    def queue_due(self, now_us: int) -> None:
        """Put scheduled messages that are due at the end of their mailboxes."""
        for box in self.boxes.values():
            due = [one for one in box if one.scheduled and one.due_us <= now_us]
            for message in sorted(due, key=lambda one: one.due_us):
                message.scheduled = False
                box.remove(message)
                box.append(message)

    def apply_due(self, now_us: int) -> None:
        """Return timed-out leases, drop expired messages, run handlers on ready ones."""
        while self.evicted:
            self.dead_letter(*self.evicted.pop())
        for endpoint, box in self.boxes.items():
            for message in list(box):
                if message.until_us and message.until_us <= now_us:
                    self._failed(endpoint, message, message.until_us, 0)
            box[:] = [message for message in box if message.alive(now_us)]
            outcomes = [
                fails for pattern, fails in self.handlers.values() if covers(pattern, endpoint)
            ]
            if outcomes and endpoint in self.registered:
                self._handle(endpoint, now_us, any(outcomes))

    def _handle(self, endpoint: str, now_us: int, fails: bool) -> None:
        for message in [one for one in self.box(endpoint) if one.ready(now_us)]:
            self.handled.append((endpoint, message.id))
            if fails:
                self.dead_letter(endpoint, message.id)
            else:
                self.box(endpoint).remove(message)

    def restarted(self) -> None:
        """Remove the handlers, and return all leases."""
        self.handlers.clear()
        for box in self.boxes.values():
            for message in box:
                if message.until_us:
                    message.until_us = message.not_before_us = 0
                    message.deliveries -= 1


def covers(pattern: str, subject: str) -> bool:
    """Return whether `pattern` matches `subject`."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1] + given[len(wanted) - 1 :]
        if len(given) < len(pattern.split(".")):
            return False
    return len(wanted) == len(given) and all(
        one in ("*", other) for one, other in zip(wanted, given, strict=True)
    )


def delivered_to(envelope: Envelope) -> str:
    """Return the mailbox of a delivered message; an answer adds nothing to the chain."""
    return envelope.subject if envelope.answer else envelope.budget.ancestor_chain[-1]
