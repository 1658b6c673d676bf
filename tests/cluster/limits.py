"""Judges the partitions of a simulated cluster together: budgets, limits, and one decision each.

Everything is counted again from the events of the logs, with plain counts.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from tests.cluster.checker import Fold, Publish, check_order, check_state
from tests.cluster.nodes import SETTINGS, Node
from tests.cluster.simulated_log import SimulatedLog
from waypost import PublishResult, RateLimitConfig, Rejection
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.partitions import partition_of
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import outbox_of
from waypost.policy.tiers import QosConfig, TierLimits
from waypost.wire.events import Accepted, AnyEvent, Decided, Forwarded, Rejected

COUNT = 3
RATE, WINDOW_MS = 6, 30_000
STRANGER, KNOWN, MAILBOX = 2, 4, 5
HOPS, CALLS = 4, 5
_BYTES = 1_000_000
LIMITED = replace(
    SETTINGS,
    max_hops=HOPS,
    default_call_budget=CALLS,
    rate_limit=RateLimitConfig(max_per_window=RATE, window_secs=WINDOW_MS // 1000),
    backpressure=BackpressureConfig(max_mailbox_size=MAILBOX),
    qos=QosConfig(
        enabled=True,
        tier1=TierLimits(STRANGER, _BYTES),
        tier2=TierLimits(KNOWN, _BYTES),
        tier3=TierLimits(KNOWN, _BYTES),
    ),
)


class Message(Publish):
    """One message, and what its callers were told."""

    def __init__(self, message_id: str, sender: str, subject: str, started: int) -> None:
        super().__init__(message_id, subject, started)
        self.sender = sender
        self.parent: object = None
        self.attempts = 0
        self.is_rejected = False

    @property
    def is_open(self) -> bool:
        """Whether no caller knows its end."""
        return self.returned is None and not self.is_rejected

    def note(self, result: PublishResult, step: int) -> None:
        """Record what one attempt returned."""
        if result.delivered_to:
            assert result.delivered_to == 1, result
            self.returned = step
        elif result.rejected and all(map(_is_final, result.rejected)):
            self.is_rejected = True


class LimitedFold(Fold):
    """The fold of one partition, in which each arrival has to be within the limits."""

    def __init__(self, number: int, delivered: dict[str, Accepted]) -> None:
        super().__init__()
        self._number = number
        self._delivered = delivered
        self._sent_ms: dict[str, list[int]] = defaultdict(list)
        self._wrote: set[tuple[str, str]] = set()
        self.forwarded: dict[int, Forwarded] = {}
        self.arrived: dict[tuple[int, int], Accepted] = {}
        self.decided: list[tuple[Forwarded, Decided]] = []
        self._undecided: dict[tuple[str, str], Forwarded] = {}

    def _note(self, event: AnyEvent) -> None:
        super()._note(event)
        match event:
            case Forwarded():
                self._count(event)
                assert partition_of(event.subject, COUNT) == event.partition != self._number
                self.forwarded[event.seq] = event
                self._undecided[event.endpoint, event.id] = event
            case Decided():
                line = self._undecided.pop((event.endpoint, event.id))
                assert event.endpoint == outbox_of(line.partition)
                self.decided.append((line, event))
            case Accepted():
                self._arrive(event)
            case Rejected() if event.reason is not Reason.RATE_LIMITED and event.origin is None:
                self._count(event)

    def _count(self, event: Accepted | Forwarded | Rejected) -> None:
        """Count a publish of a sender of this partition, and its contact."""
        assert partition_of(event.sender, COUNT) == self._number, "counted where its sender is not"
        sent, now_ms = self._sent_ms[event.sender], event.at_us // 1000
        recent = sum(one > now_ms - WINDOW_MS for one in sent)
        assert recent < RATE, f"{event.id} is over the rate limit of {event.sender}"
        sent.append(now_ms)
        self._wrote.add((event.sender, event.subject))

    def _arrive(self, event: Accepted) -> None:
        if event.origin is None:
            self._count(event)
        else:
            key = (event.origin, event.origin_seq)
            assert key not in self.arrived, f"{event.id} was decided twice"
            self.arrived[key] = event
        if not event.endpoint:
            return
        assert partition_of(event.endpoint, COUNT) == self._number
        live = self.state.mailbox(event.endpoint).live.values()
        assert len(live) < MAILBOX, f"{event.id} is over the limit of its mailbox"
        own = sum(one.sender == event.sender for one in live)
        known = (event.endpoint, event.sender) in self._wrote
        assert own < (KNOWN if known else STRANGER), f"{event.id} is over the quota of its sender"
        self._check_budget(event)
        self._delivered[event.id] = event

    def _check_budget(self, event: Accepted) -> None:
        """A delivery is within its budget, and that is less than its parent's."""
        budget, text = event.budget, f"{event.id} is over its budget"
        assert budget.hop_count < budget.max_hops <= HOPS, text
        assert 0 < budget.call_budget_remaining <= CALLS, text
        assert event.answer or event.endpoint not in budget.ancestor_chain, text
        parent = self._delivered.get(event.parent or "")
        assert event.parent is None or parent is not None, f"the parent of {event.id} is lost"
        if parent is None:
            return
        left, more = parent.budget, 0 if event.answer or parent.answer else 1
        assert budget.call_budget_remaining < left.call_budget_remaining, text
        assert budget.hop_count >= left.hop_count + more, text
        assert budget.ttl <= left.ttl, text
        chain = left.ancestor_chain + ((parent.endpoint,) if more else ())
        assert budget.ancestor_chain[: len(chain)] == chain, f"{event.id} has another chain"


class PartitionsChecker:
    """Keeps what callers were told, and compares it with all logs."""

    def __init__(self, logs: Sequence[SimulatedLog], nodes: Sequence[Sequence[Node]]) -> None:
        self._logs = logs
        self._nodes = nodes
        delivered: dict[str, Accepted] = {}
        self.folds = [LimitedFold(number, delivered) for number in range(COUNT)]
        self.messages: dict[str, Message] = {}
        self.leases: list[tuple[int, str]] = []
        self.acked: set[tuple[int, str]] = set()

    def note_lease(self, partition: int, ids: Sequence[str]) -> None:
        """Record a lease that was returned to its caller."""
        again = [one for one in ids if (partition, one) in self.acked]
        assert not again, f"{again} were acknowledged, and come again"
        self.leases += [(partition, one) for one in ids]

    def check(self) -> None:
        """Compare everything now."""
        for number, fold in enumerate(self.folds):
            for record in self._logs[number].records[len(fold.records) :]:
                fold.add(record)
            check_order(fold, self.messages)
            for node in self._nodes[number]:
                check_state(node, fold)
        stored = Counter[str]()
        for fold in self.folds:
            stored.update({one: count for one, count in fold.accepted.items() if count})
        self._check_results(stored)
        self._check_forwarded()

    def _check_results(self, stored: Counter[str]) -> None:
        doubled = [one for one, count in stored.items() if count > 1]
        assert not doubled, f"{doubled} are stored twice"
        for one in self.messages.values():
            assert one.returned is None or stored[one.id], f"{one.id} is lost"
            if one.is_rejected and one.attempts == 1:
                assert not stored[one.id], f"{one.id} was rejected, and is stored"
        delivered = [one for one in self.leases if one[1] not in self.folds[one[0]].leased]
        assert not delivered, f"{delivered} were delivered, but the log has no lease of them"
        forgotten = [one for one in self.acked if one[1] not in self.folds[one[0]].acked]
        assert not forgotten, f"{forgotten} were acknowledged, but the log does not have it"

    def _check_forwarded(self) -> None:
        """Both sides of a forwarded message agree; those of one way are in order."""
        for number, fold in enumerate(self.folds):
            latest = Counter[tuple[int, str]]()
            for (origin, seq), event in fold.arrived.items():
                line = self.folds[origin].forwarded.get(seq)
                assert line is not None, f"{event.id} arrived, and no one forwarded it"
                mine = (event.id, event.sender, event.subject, event.budget, event.parent)
                theirs = (line.id, line.sender, line.subject, line.budget, line.parent)
                assert mine == theirs, f"{event.id} arrived as another message"
                assert latest[origin, event.endpoint] < seq, f"{event.id} was overtaken"
                latest[origin, event.endpoint] = seq
            for line, decided in fold.decided:
                there = self.folds[line.partition]
                if decided.delivered_to:
                    assert there.accepted[line.id], f"{line.id} was decided, and is lost"
                elif all(map(_is_final, decided.rejected)):
                    arrived = there.arrived.get((number, line.seq))
                    text = f"{line.id} was decided as not stored, and is"
                    assert arrived is None or not arrived.endpoint, text


def _is_final(rejection: Rejection) -> bool:
    return rejection.reason is not Reason.PARTITION_UNAVAILABLE
