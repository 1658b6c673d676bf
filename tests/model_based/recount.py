"""Recounts every counter and every decision in a journal from the events before it.

Like `plain_journal`, this shares no code with the policy: a handful of plain counts, under the
settings recorded in the journal.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.faults.plain_journal import Event, Sum, add_event

RELAY = "_relay"


class Recount:
    """Follows a journal event by event; `check` fails if an event contradicts the count."""

    def __init__(self) -> None:
        self.total = Sum()
        self.ends: Counter[str] = Counter()
        self._settings: dict[str, Any] = {}
        self._breakers: dict[str, str] = {}
        self._just_evicted: dict[str, list[Event]] = {}
        self._rate_of: dict[str, int] = {}
        self._budgets: dict[str, dict[str, Any]] = {}
        self._deliveries: Counter[tuple[str, str]] = Counter()

    def follow(self, events: Iterable[Event]) -> None:
        for event in events:
            try:
                self._follow(event)
            except BaseException as problem:
                problem.add_note(f"at {event}")
                raise

    def _follow(self, event: Event) -> None:
        assert event["seq"] == self.total.seq + 1, "a number is missing"
        assert event["at_us"] >= self.total.at_us, "time went back"
        kind = event["kind"]
        if kind == "settings":
            self._settings = event["settings"]
            if event["cause"] == "start":
                self._breakers.clear()
        elif kind == "breaker":
            assert self._breakers.get(event["endpoint"], "CLOSED") == event["before"]
            self._breakers[event["endpoint"]] = event["after"]
        elif kind in ("accepted", "rejected"):
            self._arrival(event)
        elif kind == "evicted":
            message = self.total.box(event["endpoint"]).live[event["id"]]
            self._just_evicted.setdefault(event["endpoint"], []).append(message)
        self._delivery(event)
        if kind in ("acked", "failed", "expired", "evicted", "redriven", "cancelled"):
            self.ends["purged" if event.get("was") == "dead" else kind] += 1
        add_event(self.total, event)

    def _delivery(self, event: Event) -> None:
        """Count deliveries; each may fail, and the last allowed one ends in a dead letter."""
        key, limit = (event.get("endpoint", ""), event.get("id", "")), 0
        if self._settings:
            limit = self._settings["redelivery"]["maxDeliveries"]
        if event["kind"] in ("accepted", "redriven"):
            del self._deliveries[key]
        elif event["kind"] == "leased":
            self._deliveries[key] += 1
            assert event.get("attempt", 1) == self._deliveries[key]
        elif event["kind"] == "returned":
            assert event.get("uncounted") or self._deliveries[key] < limit
            if event.get("uncounted") and self._deliveries[key]:
                self._deliveries[key] -= 1
        elif event["kind"] == "failed" and "max deliveries" in event["reason"]:
            assert self._deliveries[key] >= limit
            assert event["via"] != "handler"

    # What was known when a message arrived

    def _arrival(self, event: Event) -> None:
        assert event.get("count", 1) == 1
        reason = event.get("reason")
        if reason != "access_denied":
            self._rate(event)
        if reason in ("rate_limited", "access_denied") or not event.get("endpoint"):
            return
        assert event["endpoint"] in self.total.endpoints, "nobody is registered there"
        self._budget_shrinks(event)
        before = self._before_evictions(event["endpoint"])
        assert event.get("depth", 0) == len(before)
        assert event.get("depth_bytes", 0) == sum(one["size"] for one in before)
        check = getattr(self, f"_{reason or 'accepted'}")
        check(event, before)
        self._just_evicted.pop(event["endpoint"], None)

    def _before_evictions(self, endpoint: str) -> list[Event]:
        """Return the mailbox's counts at an arrival, before evictions."""
        return [
            *self._just_evicted.get(endpoint, []),
            *self.total.box(endpoint).live.values(),
        ]

    def _rate(self, event: Event) -> None:
        config = self._settings["reliability"]["rateLimit"]
        if not config["enabled"] or event["sender"] == RELAY:
            assert not event.get("rate_limit")
            return
        since = event["at_us"] // 1000 - config["windowSecs"] * 1000
        sent = self.total.sent_ms.get(event["sender"], [])
        count = sum(at_ms > since for at_ms in sent)
        if event.get("part", 0):  # its own first part is no other publish
            count = self._rate_of[event["id"]]
        self._rate_of[event["id"]] = count
        assert event.get("rate_count", 0) == count
        limited = event.get("reason") == "rate_limited"
        assert limited == (count >= config["maxPerWindow"])

    def _tier(self, event: Event) -> int:
        if event["sender"] == RELAY:
            return 3
        now_ms = event["at_us"] // 1000
        reverse = self.total.last_seen.get((event["endpoint"], event["sender"]))
        if reverse is None:
            return 1
        return 3 if reverse >= now_ms - self._settings["qos"]["bidirectionalWindowMs"] else 2

    # Verdicts

    def _accepted(self, event: Event, before: list[Event]) -> None:
        self._has_room(event, before)
        assert self._fits_quota(event, before)
        assert self._breaker(event["endpoint"]) != "OPEN"
        assert overdrawn(event) == ""
        qos = self._settings["qos"]
        if qos["enabled"]:
            after = sum(one["size"] for one in self.total.box(event["endpoint"]).live.values())
            assert after + event["size"] <= qos["inboxMaxBytes"]

    def _backpressure(self, event: Event, before: list[Event]) -> None:
        cap, qos = self._settings["reliability"]["backpressure"], self._settings["qos"]
        full = cap["enabled"] and len(before) >= cap["maxMailboxSize"]
        held = sum(one["size"] for one in before)
        heavy = qos["enabled"] and held + event["size"] > qos["inboxMaxBytes"]
        assert full or heavy

    def _quota_exceeded(self, event: Event, before: list[Event]) -> None:
        self._has_room(event, before)
        assert self._settings["qos"]["enabled"]
        assert not self._fits_quota(event, before)

    def _circuit_open(self, event: Event, before: list[Event]) -> None:
        self._has_room(event, before)
        assert self._fits_quota(event, before)
        assert self._breaker(event["endpoint"]) != "CLOSED"

    def _budget_exceeded(self, event: Event, before: list[Event]) -> None:
        self._has_room(event, before)
        assert self._fits_quota(event, before)
        assert event["detail"] == overdrawn(event) != ""

    def _breaker(self, endpoint: str) -> str:
        enabled = self._settings["reliability"]["circuitBreaker"]["enabled"]
        return self._breakers.get(endpoint, "CLOSED") if enabled else "CLOSED"

    def _has_room(self, event: Event, before: list[Event]) -> None:
        cap = self._settings["reliability"]["backpressure"]
        assert not cap["enabled"] or len(before) < cap["maxMailboxSize"]

    def _fits_quota(self, event: Event, before: list[Event]) -> bool:
        qos = self._settings["qos"]
        if not qos["enabled"]:
            return True
        tier = self._tier(event)
        assert event.get("tier", 1) == tier
        sizes = [one["size"] for one in before if one["sender"] == event["sender"]]
        assert (event.get("quota_count", 0), event.get("quota_bytes", 0)) == (
            len(sizes),
            sum(sizes),
        )
        limits = qos[f"tier{tier}"]
        return (
            len(sizes) < limits["maxEnvelopes"] and sum(sizes) + event["size"] <= limits["maxBytes"]
        )

    def _budget_shrinks(self, event: Event) -> None:
        budget = full_budget(event["budget"])
        if not event.get("chosen_id"):  # a chosen id may name several messages over time
            self._budgets[event["id"]] = {**budget, "answer": event.get("answer", False)}
        settings = self._settings
        assert budget["max_hops"] <= settings["maxHops"]
        assert budget["ttl"] <= due_ms(event) + settings["defaultTtlMs"]
        assert budget["call_budget_remaining"] <= settings["defaultCallBudget"]
        parent = self._budgets.get(event.get("parent") or "")
        if parent is not None:
            more_hops = 0 if event.get("answer") else 1
            if not parent["answer"]:  # its delivery was a hop
                assert budget["hop_count"] >= parent["hop_count"] + more_hops
            assert budget["hop_count"] >= parent["hop_count"]
            assert budget["max_hops"] <= parent["max_hops"]
            assert budget["ttl"] <= parent["ttl"]
            assert set(budget["ancestor_chain"]) >= set(parent["ancestor_chain"])
            left = parent["call_budget_remaining"]
            assert budget["call_budget_remaining"] < left or left <= 0

    def assert_every_message_has_one_end(self) -> None:
        """Assert that each message is still stored, or was removed in exactly one way."""
        arrived = sum(len(box.arrivals) for box in self.total.boxes.values())
        there = sum(len(box.live) + len(box.dead) for box in self.total.boxes.values())
        replaced = sum(box.replaced for box in self.total.boxes.values())
        gone = sum(self.ends[kind] for kind in ("acked", "expired", "purged", "cancelled"))
        assert arrived == there + gone + replaced


def due_ms(event: Event) -> int:
    """Return when a message is delivered at the earliest."""
    return max(event["at_us"], event.get("due_us", 0)) // 1000


def full_budget(budget: dict[str, Any]) -> dict[str, Any]:
    return {"hop_count": 0, "max_hops": 5, "ancestor_chain": [], **budget}


def overdrawn(event: Event) -> str:
    """Return why the budget does not allow a delivery, in the specification's words."""
    budget, endpoint = full_budget(event["budget"]), event["endpoint"]
    if budget["hop_count"] >= budget["max_hops"]:
        return f"max hops exceeded ({budget['hop_count']}/{budget['max_hops']})"
    if endpoint in budget["ancestor_chain"] and not event.get("answer"):
        return f"cycle detected: {endpoint} already in chain"
    if due_ms(event) > budget["ttl"]:
        return "message expired (TTL)"
    if budget["call_budget_remaining"] <= 0:
        return "call budget exhausted"
    return ""
