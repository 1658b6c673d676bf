"""A simulated run of a relay on a manual clock, checked after every step.

After every step, `everything_adds_up` asserts that the relay's state, its mailbox files and the
results of its callers equal the sum of its journal.
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

from tests.faults import plain_journal
from tests.model_based.agreement import assert_callers_know, assert_memory_is, order_at
from tests.model_based.choices import ENDPOINTS, LIMITS
from tests.model_based.model import Model, covers, delivered_to
from tests.model_based.recount import Recount
from waypost import (
    Envelope,
    InvalidMessage,
    PublishResult,
    Relay,
    Settings,
    Signal,
    SignalType,
)
from waypost.policy.settings import HousekeepingConfig, merge_settings
from waypost.relay.state import checkpoints
from waypost.testing import ManualClock


class Life:
    """One run of a relay; subclasses choose its storage and retention."""

    storage: ClassVar[str] = "journal"
    keep: ClassVar[HousekeepingConfig] = HousekeepingConfig(
        segment_max_bytes=8_192, duplicate_window_ms=15_000
    )

    # The machine itself

    def __init__(self) -> None:
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
        self.ids_taken = 0
        self.always_due = mock.patch.object(checkpoints, "_INTERVAL_S", 0.0)
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

    def end(self) -> None:
        """Close the relay; if no step failed, its index must be right."""
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
        """Call a synchronous function on the relay's event loop."""

        async def calling() -> Any:
            return act(*arguments)

        return self.do(calling())

    def open(self) -> None:
        self.relay = self.do(Relay(self.data, settings=self.settings, clock=self.clock).open())
        self.call(self.relay.on_signal, ">", self.model.signalled)
        self.model.redelivery = self.relay.settings.redelivery
        self.held.clear()
        self.stops.clear()
        self.model.restarted()

    def close(self) -> None:
        self.do(self.relay.close())
        self.read_journal()

    def read_journal(self) -> None:
        """Read new events of the journal before they may be deleted."""
        last = self.events[-1]["seq"] if self.events else 0
        new = [event for event in plain_journal.committed(self.data) if event["seq"] > last]
        self.recount.follow(new)
        self.events += new

    def settle(self) -> None:
        self.do(self.relay.idle())
        self.model.queue_due(self.clock())
        self.do(
            self.relay._runtime.checkpoints._wait_until_written()
        )  # or threads would decide what is dropped
        if self.model.evicted:
            known = len(self.events)
            self.do(self.relay.sync())
            self.read_journal()
            self.model.notified(self.events, known)
        self.model.apply_due(self.clock())

    def now_ms(self) -> int:
        return self.clock() // 1000

    # What may happen

    def register(self, endpoint: str) -> None:
        self.call(self.relay.register_endpoint, endpoint)
        self.model.registered[endpoint] = None
        self.settle()

    def unregister(self, endpoint: str) -> None:
        handled = any(covers(pattern, endpoint) for pattern, _ in self.model.handlers.values())
        if endpoint in self.model.registered and not handled:
            self.call(self.relay.unregister_endpoint, endpoint)
            del self.model.registered[endpoint]
            self.settle()

    def publish(  # noqa: PLR0913, PLR0917 - each is part of one message
        self,
        subject: str,
        sender: str,
        size: int,
        budget: dict[str, Any] | None,
        parent: int,
        message_id: str | None,
        delay: float | None = None,
    ) -> None:
        self.call(self.relay.sweep)  # so that nobody has to guess which expired mail is still there
        self.settle()
        known = [one for held in self.held.values() for one in held.values()]
        chosen = known[parent] if parent < len(known) else None
        draft = {"sender": sender, "budget": budget, "parent": chosen, "message_id": message_id}
        publishing = self.relay.publish(subject, "x" * size, **draft, delay=delay)
        try:
            again = self.expect_again(sender, message_id, subject)
        except InvalidMessage as taken:
            self.expect_rejection(publishing, str(taken))
            return
        due_us = self.clock() + int(delay * 1_000_000) if delay else 0
        self.note_publish(self.do(publishing), subject, draft, again, due_us)
        self.settle()

    def cancel(self, which: int, sender: str) -> None:
        """Cancel a scheduled message, which may be another's."""
        scheduled = sorted(self.model.scheduled())
        if which < len(scheduled):
            _, _, message_id = scheduled[which]
            expected = [message_id] if self.model.cancelled(message_id, sender) else []
            assert self.do(self.relay.cancel(message_id, sender)) == expected
            self.settle()

    def expect_again(
        self, sender: str, message_id: str | None, subject: str
    ) -> PublishResult | None:
        if message_id is None:
            return None
        window_us = self.keep.duplicate_window_ms * 1000
        return self.model.expected_again(sender, message_id, subject, self.clock(), window_us)

    def expect_rejection(self, publishing: Coroutine[Any, Any, PublishResult], why: str) -> None:
        """Publish an invalid message, and assert that nothing is journaled.

        A publish that is rejected whole is not looked up: nothing can be wrong with its id then.
        """
        seq, problem, result = self.relay.metrics().seq, "", None
        try:
            result = self.do(publishing)
        except InvalidMessage as raised:
            problem = str(raised)
        if result is not None:
            assert not result.message_id
            self.settle()
            return
        assert (problem, self.relay.metrics().seq) == (why, seq)
        self.ids_taken += 1

    def note_publish(
        self,
        result: PublishResult,
        subject: str,
        draft: dict[str, Any],
        again: PublishResult | None,
        due_us: int = 0,
    ) -> None:
        remembered = again is self.model.first.get((draft["sender"], draft["message_id"]), "--")[1]
        if again is not None and (remembered or result.message_id):
            assert (result.message_id, result.delivered_to) == (
                again.message_id,
                again.delivered_to,
            )
            return
        ttl_ms = max(self.now_ms(), due_us // 1000) + self.relay.settings.default_ttl_ms
        if draft["parent"] is not None:
            ttl_ms = min(ttl_ms, draft["parent"].budget.ttl)
        if draft["budget"] is not None:
            ttl_ms = min(ttl_ms, draft["budget"].get("ttl", ttl_ms))
        journal = []
        if result.rejected:
            self.do(self.relay.sync())
            journal = plain_journal.committed(self.data)
        self.model.published(result, subject, draft["sender"], ttl_ms, journal, due_us)
        if draft["message_id"] is not None and result.message_id:
            self.model.first[draft["sender"], result.message_id] = (self.clock(), result)

    def publish_many(self, subjects: list[str], sender: str) -> None:
        drafts = [{"subject": one, "payload": one, "sender": sender} for one in subjects]
        results = self.do(self.relay.publish_many(drafts))
        nothing = {"sender": sender, "budget": None, "parent": None, "message_id": None}
        for subject, result in zip(subjects, results, strict=True):
            self.note_publish(result, subject, nothing, None)
        self.settle()

    def flood(self, endpoint: str, sender: str, count: int, size: int) -> None:
        """Publish many messages of one sender to one mailbox."""
        for _ in range(count):
            self.publish(endpoint, sender, size, None, 9, None)

    def lease(self, endpoint: str, limit: int, small: bool) -> None:
        if self.relay.get_endpoint(endpoint) is None:
            return
        leased = self.do(self.relay.lease(endpoint, limit, 1 if small else None))
        until_us = self.clock() + self.relay.settings.lease_timeout_ms * 1000
        ids = [one.id for one in leased]
        self.model.leased(endpoint, ids, 0 if small else limit, self.clock(), until_us)
        self.held.setdefault(endpoint, {}).update({one.id: one for one in leased})
        self.settle()

    def ack(self, endpoint: str, share: int) -> None:
        self.sweep()  # as in publish
        ids = list(self.held.get(endpoint, {}))[::share]
        if ids and endpoint in self.relay._runtime.ledger.state.mailboxes:
            expected = self.model.acked(endpoint, ids)
            assert self.do(self.relay.ack(endpoint, ids)) == expected
            self.settle()

    def nack(self, endpoint: str, delay: float) -> None:
        ids = list(self.held.get(endpoint, {}))[::2]
        if ids and endpoint in self.relay._runtime.ledger.state.mailboxes:
            delay_us = int(delay * 1_000_000)
            expected = self.model.nacked(endpoint, ids, self.clock(), delay_us)
            assert self.do(self.relay.nack(endpoint, ids, delay)) == expected
            self.settle()

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
                self.handled.append((delivered_to(envelope), envelope.id))
            if fails:
                raise ValueError("no")

        return handle

    def meant(self, pattern: str, envelope: Envelope) -> bool:
        return covers(pattern, delivered_to(envelope))

    def unsubscribe(self, number: int) -> None:
        if number in self.model.handlers:
            self.call(self.stops[number])
            del self.model.handlers[number]
            self.settle()

    def signal(self, subject: str) -> None:
        seq = self.relay.metrics().seq
        presence = Signal(
            type=SignalType.PRESENCE,
            state="here",
            endpoint_subject=subject,
            timestamp="2026-01-01T00:00:00Z",  # type: ignore[arg-type]
        )
        assert self.call(self.relay.signal, subject, presence) == 1
        assert self.relay.metrics().seq == seq

    def advance(self, milliseconds: int) -> None:
        self.call(self.clock.advance_ms, milliseconds)
        self.settle()

    def sweep(self) -> None:
        self.call(self.relay.sweep)
        self.settle()

    def change_settings(self, change: dict[str, Any]) -> None:
        (self.data / "config.json").write_text(json.dumps(change))
        self.call(self.relay._runtime.settings.reload)
        self.model.redelivery = self.relay.settings.redelivery
        self.settle()

    def redrive(self, which: int) -> None:
        dead = [(endpoint, one) for endpoint, box in self.model.dead.items() for one in box]
        if which < len(dead):
            endpoint, message_id = dead[which]
            handled = any(covers(pattern, endpoint) for pattern, _ in self.model.handlers.values())
            if handled and endpoint not in self.model.registered:
                return  # as in subscribe
            assert self.do(self.relay.redrive(message_id, endpoint)) == 1
            self.model.redriven(endpoint, message_id, self.clock())
            self.settle()

    def purge(self) -> None:
        count = sum(len(box) for box in self.model.dead.values())
        assert self.do(self.relay.purge_dead_letters()) == count
        self.model.dead.clear()
        self.settle()

    def rebuild_index(self) -> None:
        self.do(self.relay.rebuild_index())

    def restart(self, how: str) -> None:
        """Restart; `how` is "cleanly" or "by crash", with or without the index."""
        keeps_index = "no index" not in how
        if "crash" in how:
            self.leave_files_as_they_lie(with_index=keeps_index)
        else:
            self.close()
            plain_journal.assert_index_is_right(self.data, self.events)
            if not keeps_index:
                for path in self.data.glob("index.db*"):
                    path.unlink()
        self.open()
        self.settle()

    def leave_files_as_they_lie(self, *, with_index: bool) -> None:
        copy = self.scratch / str(int(self.data.name) + 1)
        ignore = shutil.ignore_patterns("index.db*", "ballast", "lock", ".*.tmp")
        shutil.copytree(self.data, copy, symlinks=True, ignore=ignore)
        if with_index:
            source = sqlite3.connect(self.data / "index.db")
            target = sqlite3.connect(copy / "index.db")
            source.backup(target)
            source.close()
            target.close()
        self.do(self.relay.close())
        shutil.rmtree(self.data)
        self.data = copy

    # What must hold

    def everything_adds_up(self) -> None:
        self.read_journal()
        self.recount.assert_every_message_has_one_end()
        total = self.recount.total
        assert_memory_is(self.relay, total, self.now_ms())
        assert_callers_know(self.model, total, self.now_ms())
        for endpoint in ENDPOINTS:
            assert order_at(endpoint, self.handled) == order_at(endpoint, self.model.handled)
        if self.storage == "maildir":
            plain_journal.assert_files_are(self.data, total)
        self.sound = True
