"""A relay that anything may happen to, on a clock moved by hand, watched at every step.

`Life` is a Hypothesis state machine. After every step the relay's memory, its mailbox files and
what its callers were told must be what its journal adds up to.
"""

import asyncio
import json
import logging
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.faults import plain_journal
from tests.simulation.model import Model, covers
from tests.simulation.recount import Recount
from waypost import Envelope, PublishResult, Relay, Settings, Signal, SignalType
from waypost.policy.settings import HousekeepingConfig, merge_settings
from waypost.relay import checkpoints
from waypost.testing import ManualClock

ENDPOINTS = ("agent.a", "agent.b", "agent.c", "team.x.y")
SENDERS = ("agent.a", "agent.b", "out.s", "out.t")
PATTERNS = (*ENDPOINTS, "agent.*", "agent.>", ">", "team.*.y", "nobody.here")
IDS = ("id-1", "id-2", "id-3")
LIMITS = {
    "defaultTtlMs": 20_000,
    "defaultCallBudget": 3,
    "maxHops": 3,
    "leaseTimeoutMs": 4_000,
    "reliability": {
        "rateLimit": {"windowSecs": 10, "maxPerWindow": 9},
        "circuitBreaker": {"failureThreshold": 2, "cooldownMs": 3_000},
        "backpressure": {"maxMailboxSize": 5},
    },
    "qos": {
        "enabled": True,
        "tier1": {"maxEnvelopes": 3, "maxBytes": 1_500},
        "tier2": {"maxEnvelopes": 4, "maxBytes": 2_000},
        "tier3": {"maxEnvelopes": 5, "maxBytes": 3_000},
        "bidirectionalWindowMs": 8_000,
        "inboxMaxBytes": 2_600,
    },
}
CHANGES: list[dict[str, Any]] = [
    {},
    {"reliability": {"backpressure": {"maxMailboxSize": 2}}},
    {"reliability": {"backpressure": {"enabled": False}}},
    {"reliability": {"rateLimit": {"maxPerWindow": 3}}},
    {"reliability": {"rateLimit": {"enabled": False}}},
    {"reliability": {"circuitBreaker": {"enabled": False}}},
    {"qos": {"enabled": False}},
    {"qos": {"overflow": "reject"}},
    {"qos": {"inboxMaxBytes": 1_200}},
    {"defaultTtlMs": 2_000, "leaseTimeoutMs": 1_000},
    {"maxHops": 1},
    {"maxHops": "many"},  # bad, so it is ignored whole
]
BUDGETS: list[dict[str, Any] | None] = [
    None,
    {"call_budget_remaining": 0},
    {"call_budget_remaining": 99},
    {"max_hops": 1},
    {"hop_count": 2},
    {"ancestor_chain": ["agent.a", "agent.c"]},
    {"ttl": 1},
]


class Life(RuleBasedStateMachine):
    """One relay's life. Subclasses choose how it keeps its mail and its journal."""

    storage: ClassVar[str] = "journal"
    keep: ClassVar[HousekeepingConfig] = HousekeepingConfig(
        segment_max_bytes=8_192, duplicate_window_ms=15_000
    )
    drops_segments: ClassVar[bool] = False

    # The machine itself

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.scratch = Path(tempfile.mkdtemp(prefix="waypost-life-"))
        self.data = self.scratch / "0"
        self.clock = ManualClock()
        self.model = Model()
        self.recount = Recount()
        self.events: list[plain_journal.Event] = []
        self.handled: list[tuple[str, str]] = []
        self.held: dict[str, dict[str, Envelope]] = {}
        self.stops: dict[int, Any] = {}
        self.always_due = mock.patch.object(checkpoints, "_SECONDS", 0.0)
        self.always_due.start()
        logging.getLogger("waypost").setLevel(logging.CRITICAL)  # much goes wrong, as it should
        base = Settings(
            storage=self.storage,  # type: ignore[arg-type]
            durability="async",
            watch_files=False,
            housekeeping=self.keep,
        )
        self.settings = merge_settings(base, json.dumps(LIMITS).encode())
        self.open()
        for endpoint in ENDPOINTS[:3]:
            self.call(self.relay.register_endpoint, endpoint)
            self.model.registered[endpoint] = None
        self.settle()

    def teardown(self) -> None:
        if not hasattr(self, "relay"):
            return
        try:
            sound = self.sound  # or a second failure would hide the first
            self.do(self.relay.close())
            if sound:
                self.read_journal()
                plain_journal.assert_index_is_right(self.data, self.events)
        finally:
            self.always_due.stop()
            logging.getLogger("waypost").setLevel(logging.NOTSET)
            self.loop.close()
            shutil.rmtree(self.scratch)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        self.sound = False
        return self.loop.run_until_complete(work)

    def call(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Call something that is not awaited, on the loop the relay belongs to."""

        async def calling() -> Any:
            return act(*arguments)

        return self.do(calling())

    def open(self) -> None:
        self.relay = self.do(Relay(self.data, settings=self.settings, clock=self.clock).open())
        self.call(self.relay.on_signal, ">", self.model.signalled)
        self.held.clear()
        self.stops.clear()
        self.model.restarted()

    def close(self) -> None:
        self.do(self.relay.close())
        self.read_journal()

    def read_journal(self) -> None:
        """Take note of what is new in the journal, before it may be dropped."""
        last = self.events[-1]["seq"] if self.events else 0
        new = [event for event in plain_journal.committed(self.data) if event["seq"] > last]
        self.recount.follow(new)
        self.events += new

    def settle(self) -> None:
        self.do(self.relay.idle())
        self.do(self.relay.parts.checkpoints._settle())  # or threads would decide what is dropped
        self.model.settle(self.clock())

    def now_ms(self) -> int:
        return self.clock() // 1000

    # What may happen

    @rule(endpoint=st.sampled_from(ENDPOINTS))
    def register(self, endpoint: str) -> None:
        self.call(self.relay.register_endpoint, endpoint)
        self.model.registered[endpoint] = None
        self.settle()

    @rule(endpoint=st.sampled_from(ENDPOINTS))
    def unregister(self, endpoint: str) -> None:
        handled = any(covers(pattern, endpoint) for pattern, _ in self.model.handlers.values())
        if endpoint in self.model.registered and not handled:
            self.call(self.relay.unregister_endpoint, endpoint)
            del self.model.registered[endpoint]
            self.settle()

    @rule(
        subject=st.sampled_from(PATTERNS),
        sender=st.sampled_from(SENDERS),
        size=st.integers(0, 700),
        budget=st.sampled_from(BUDGETS),
        parent=st.integers(0, 5),
        message_id=st.sampled_from([None, None, None, *IDS]),
    )
    def publish(
        self,
        subject: str,
        sender: str,
        size: int,
        budget: dict[str, Any] | None,
        parent: int,
        message_id: str | None,
    ) -> None:
        self.call(self.relay.sweep)  # so that nobody has to guess which expired mail is still there
        self.settle()
        known = [one for held in self.held.values() for one in held.values()]
        chosen = known[parent] if parent < len(known) else None
        draft = {"sender": sender, "budget": budget, "parent": chosen, "message_id": message_id}
        again = self.expect_again(message_id, subject)
        result = self.do(self.relay.publish(subject, "x" * size, **draft))
        self.note_publish(result, subject, draft, again)
        self.settle()

    def expect_again(self, message_id: str | None, subject: str) -> PublishResult | None:
        if message_id is None:
            return None
        window_us = self.keep.duplicate_window_ms * 1000
        return self.model.expected_again(message_id, subject, self.clock(), window_us)

    def note_publish(
        self,
        result: PublishResult,
        subject: str,
        draft: dict[str, Any],
        again: PublishResult | None,
    ) -> None:
        if again is not None:
            assert (result.message_id, result.delivered_to) == (
                again.message_id,
                again.delivered_to,
            )
            return
        ttl_ms = self.now_ms() + self.relay.settings.default_ttl_ms
        if draft["parent"] is not None:
            ttl_ms = min(ttl_ms, draft["parent"].budget.ttl)
        if draft["budget"] is not None:
            ttl_ms = min(ttl_ms, draft["budget"].get("ttl", ttl_ms))
        self.model.published(result, subject, ttl_ms)
        if draft["message_id"] is not None and result.message_id:
            self.model.first[result.message_id] = (self.clock(), result)

    @rule(
        subjects=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6),
        sender=st.sampled_from(SENDERS),
    )
    def publish_many(self, subjects: list[str], sender: str) -> None:
        drafts = [{"subject": one, "payload": one, "sender": sender} for one in subjects]
        results = self.do(self.relay.publish_many(drafts))
        nothing = {"budget": None, "parent": None, "message_id": None}
        for subject, result in zip(subjects, results, strict=True):
            self.note_publish(result, subject, nothing, None)
        self.settle()

    @rule(endpoint=st.sampled_from(ENDPOINTS), limit=st.integers(1, 6), small=st.booleans())
    def lease(self, endpoint: str, limit: int, small: bool) -> None:
        if self.relay.get_endpoint(endpoint) is None:
            return
        leased = self.do(self.relay.lease(endpoint, limit, 1 if small else None))
        until_us = self.clock() + self.relay.settings.lease_timeout_ms * 1000
        ids = [one.id for one in leased]
        self.model.leased(endpoint, ids, 0 if small else limit, self.clock(), until_us)
        self.held.setdefault(endpoint, {}).update({one.id: one for one in leased})
        self.settle()

    @rule(endpoint=st.sampled_from(ENDPOINTS), share=st.integers(1, 3))
    def ack(self, endpoint: str, share: int) -> None:
        ids = list(self.held.get(endpoint, {}))[::share]
        if ids and endpoint in self.relay.parts.ledger.state.mailboxes:
            expected = self.model.acked(endpoint, ids)
            assert self.do(self.relay.ack(endpoint, ids)) == expected
            self.settle()

    @rule(endpoint=st.sampled_from(ENDPOINTS), delay=st.sampled_from([0.0, 0.0, 1.5, 30.0]))
    def nack(self, endpoint: str, delay: float) -> None:
        ids = list(self.held.get(endpoint, {}))[::2]
        if ids and endpoint in self.relay.parts.ledger.state.mailboxes:
            not_before_us = self.clock() + int(delay * 1_000_000) if delay else 0
            expected = self.model.nacked(endpoint, ids, not_before_us)
            assert self.do(self.relay.nack(endpoint, ids, delay)) == expected
            self.settle()

    @rule(pattern=st.sampled_from(PATTERNS), fails=st.booleans())
    def subscribe(self, pattern: str, fails: bool) -> None:
        waiting = [one for one, box in self.model.boxes.items() if box]
        if any(covers(pattern, one) and one not in self.model.registered for one in waiting):
            return  # whether mail of nobody is handled is not promised
        number = len(self.stops)
        handler = self.handler(number, fails)
        self.stops[number] = self.call(self.relay.subscribe, pattern, handler)
        self.model.handlers[number] = (pattern, fails)
        self.settle()

    def handler(self, number: int, fails: bool) -> Any:
        async def handle(envelope: Envelope) -> None:
            first = min(n for n, (p, _) in self.model.handlers.items() if self.meant(p, envelope))
            if number == first:  # several may be told of one message; it was handled once
                self.handled.append((envelope.budget.ancestor_chain[-1], envelope.id))
            if fails:
                raise ValueError("no")

        return handle

    def meant(self, pattern: str, envelope: Envelope) -> bool:
        return covers(pattern, envelope.budget.ancestor_chain[-1])

    @rule(number=st.integers(0, 5))
    def unsubscribe(self, number: int) -> None:
        if number in self.model.handlers:
            self.call(self.stops[number])
            del self.model.handlers[number]
            self.settle()

    @rule(subject=st.sampled_from(ENDPOINTS))
    def signal(self, subject: str) -> None:
        seq = self.relay.metrics().seq
        told = Signal(
            type=SignalType.PRESENCE,
            state="here",
            endpoint_subject=subject,
            timestamp="2026-01-01T00:00:00Z",  # type: ignore[arg-type]
        )
        assert self.call(self.relay.signal, subject, told) == 1
        assert self.relay.metrics().seq == seq

    @rule(milliseconds=st.sampled_from([0, 1, 500, 1_000, 3_000, 4_000, 8_001, 20_000, 60_000]))
    def advance(self, milliseconds: int) -> None:
        self.call(self.clock.advance_ms, milliseconds)
        self.settle()

    @rule()
    def sweep(self) -> None:
        self.call(self.relay.sweep)
        self.settle()

    @rule(change=st.sampled_from(CHANGES))
    def change_settings(self, change: dict[str, Any]) -> None:
        (self.data / "config.json").write_text(json.dumps(change))
        self.call(self.relay.parts.settings.reload)
        self.settle()

    @rule(which=st.integers(0, 3))
    def redrive(self, which: int) -> None:
        dead = [(endpoint, one) for endpoint, box in self.model.dead.items() for one in box]
        if which < len(dead):
            endpoint, message_id = dead[which]
            assert self.do(self.relay.redrive(message_id, endpoint)) == 1
            self.model.redriven(endpoint, message_id)
            self.settle()

    @rule()
    def purge(self) -> None:
        count = sum(len(box) for box in self.model.dead.values())
        assert self.do(self.relay.purge_dead_letters()) == count
        self.model.dead.clear()
        self.settle()

    @rule()
    def rebuild_index(self) -> None:
        self.do(self.relay.rebuild_index())

    @rule()
    def restart(self) -> None:
        self.close()
        plain_journal.assert_index_is_right(self.data, self.events)
        self.open()
        self.settle()

    @precondition(lambda self: not self.drops_segments)
    @rule()
    def restart_without_index(self) -> None:
        self.close()
        for path in self.data.glob("index.db*"):
            path.unlink()
        self.open()
        self.settle()

    @rule(with_index=st.booleans())
    def crash(self, with_index: bool) -> None:
        """Go on with the files as they lie there now."""
        copy = self.scratch / str(int(self.data.name) + 1)
        ignore = shutil.ignore_patterns("index.db*", "ballast", "lock")
        shutil.copytree(self.data, copy, symlinks=True, ignore=ignore)
        if with_index or self.drops_segments:
            source = sqlite3.connect(self.data / "index.db")
            target = sqlite3.connect(copy / "index.db")
            source.backup(target)
            source.close()
            target.close()
        self.do(self.relay.close())
        shutil.rmtree(self.data)
        self.data = copy
        self.open()
        self.settle()

    # What must hold

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "relay"):
            return
        self.read_journal()
        self.recount.assert_every_message_has_one_end()
        self.memory_is_the_journal()
        self.callers_see_the_journal()
        if self.storage == "maildir":
            plain_journal.assert_files_are(self.data, self.recount.total)
        self.sound = True

    def memory_is_the_journal(self) -> None:
        state, total = self.relay.parts.ledger.state, self.recount.total
        boxes = state.mailboxes.values()
        assert {box.subject: list(box.live) for box in boxes if box.live} == total.order()
        dead = {box.subject: {m.id: m.reason for m in box.dead.values()} for box in boxes}
        assert {name: found for name, found in dead.items() if found} == total.dead()
        leased = {(name, one) for name, box in total.boxes.items() for one in box.leased}
        assert set(state.leased) == leased
        for box in boxes:
            held = total.box(box.subject).usage()
            assert box.occupancy.by_sender == held
            assert box.occupancy.depth == sum(count for count, _ in held.values())
            assert box.occupancy.bytes == sum(size for _, size in held.values())
            assert box.registered == (box.subject in total.endpoints)
        assert {box.subject: box.since_us for box in state.registered()} == total.endpoints
        assert {pair: state.last_seen.get(pair) for pair in total.last_seen} == total.last_seen
        self.windows_are_the_journal()

    def windows_are_the_journal(self) -> None:
        window_ms = self.relay.settings.rate_limit.window_secs * 1000
        since = self.now_ms() - window_ms
        sent = {name: [at for at in all_ if at > since] for name, all_ in self.sent().items()}
        found = self.relay.parts.ledger.state.windows.snapshot(self.now_ms(), window_ms)
        assert found == {name: instants for name, instants in sent.items() if instants}

    def sent(self) -> dict[str, list[int]]:
        return self.recount.total.sent_ms

    def callers_see_the_journal(self) -> None:
        total = self.recount.total
        for endpoint in ENDPOINTS:
            box = total.box(endpoint)
            live = [
                name
                for name, event in box.live.items()
                if name in box.leased or event["budget"]["ttl"] >= self.now_ms()
            ]
            assert live == [one.id for one in self.model.box(endpoint)]
            assert set(total.box(endpoint).dead) == set(self.model.dead.get(endpoint, {}))
            assert self.order_at(endpoint, self.handled) == self.order_at(
                endpoint, self.model.handled
            )

    def order_at(self, endpoint: str, handled: list[tuple[str, str]]) -> list[str]:
        return [message_id for where, message_id in handled if where == endpoint]
