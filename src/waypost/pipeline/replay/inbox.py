"""One inbox, replayed: the policy's own code, row by row.

Rule 1  What leaves the mailbox when is history's word. Evictions are not: the replay has its own.
Rule 2  A stray is a message whose end history cannot tell: one it refused, or one it evicted and
        the replay did not. It leaves with the inbox's next acknowledgement, which is its success,
        or when its time is up.
Rule 3  A message of which the replay holds nothing changes nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.steps import Step
from waypost.policy.admission import DeliveryVerdict, admit_delivery, make_room
from waypost.policy.breakers import CircuitBreakers
from waypost.policy.budgets import Budget
from waypost.policy.occupancy import Occupancy

_ARRIVED, _REJECTED, _BURIED = int(Step.ARRIVED), int(Step.REJECTED), int(Step.BURIED)
_ENDLESS = 1 << 62
_HERE = "here"
"""What the endpoint is called, to breakers and budgets: there is no other in its replay."""

_FINE = Budget(ttl=_ENDLESS)
"""Stands for every budget that is nowhere near its end."""

Row = tuple[Any, ...]
"""seq, at_ms, step, size, tier, ttl_ms, letter, sender, deferred, and a budget that is doubtful."""


class Letter:
    """A message in the mailbox."""

    __slots__ = ("leased", "probe", "sender", "size", "stray", "ttl")

    def __init__(self, sender: str, size: int, ttl: int) -> None:
        self.sender = sender
        self.size = size
        self.ttl = ttl
        self.leased = False
        self.probe = False
        self.stray = False


class _Judged:
    """The arrival being judged."""

    __slots__ = ("budget", "endpoint", "sender", "size", "tier")

    def __init__(self) -> None:
        self.endpoint = _HERE
        self.sender = ""
        self.budget = _FINE
        self.size = 0
        self.tier = 1


class Inbox:
    """The mailbox and the breaker of one endpoint. `live` is in the mailbox's order."""

    def __init__(self, in_force: SettingsInForce, relay: str) -> None:
        self._in_force = in_force
        in_force.follow(relay)
        self.occupancy = Occupancy()
        self.live: dict[str, Letter] = {}
        self._strays: dict[str, Letter] = {}
        self._strays_ttl = _ENDLESS
        self._deferred = False
        self._known: dict[str, Letter] = {}
        """What history has and could put back, whatever the replay did with it."""
        self._judged = _Judged()
        self._breakers = CircuitBreakers()
        self._enter_era()
        self._steps = {
            Step.STOPPED: self._stopped,
            Step.LEASED: self._lease,
            Step.ACKED: self._ack,
            Step.RETURNED: self._return,
            Step.RAISED: self._raised,
            Step.GONE: self._gone,
            Step.EVICTED: self._evicted,
            Step.REDRIVEN: self._redriven,
            Step.RESET: self._reset,
        }

    def follow(self, rows: Iterable[Row]) -> Iterator[str]:
        """Go through rows in order; gives for each arrival why it is refused, or ""."""
        steps, in_force = self._steps, self._in_force
        for row in rows:
            if row[0] >= in_force.until_seq:
                self._enter_era(row[0])
            step = row[2]
            if step <= _BURIED:
                yield self._arrive(row)
            else:
                steps[step](row)

    def _enter_era(self, seq: int = 0) -> None:
        restarted = self._in_force.reach(seq)
        settings = self._in_force.settings
        config, idle_ms = settings.circuit_breaker, settings.housekeeping.breaker_idle_ms
        if restarted:
            self._breakers = CircuitBreakers()
            for letter in self.live.values():
                letter.probe = False
        self._breakers.update_config(config, idle_ms)

    def _arrive(self, row: Row) -> str:
        _, at_ms, step, size, tier, ttl, key, sender, deferred, budget = row
        if step == _ARRIVED:
            self._deferred = deferred
        if step != _REJECTED:
            self._known[key] = Letter(sender, size, ttl)
        if at_ms > self._strays_ttl:
            self._expire_strays(at_ms)
        judged, settings = self._judged, self._in_force.settings
        judged.sender, judged.size, judged.tier = sender, size, tier
        judged.budget = _FINE if budget is None else self._budget(budget, ttl)
        verdict = admit_delivery(judged, self.occupancy, self._breakers, settings, at_ms)
        if verdict.evict_bytes:
            self._make_room(verdict)
        if verdict.reason is not None:
            return verdict.reason.value
        letter = Letter(sender, size, ttl)
        letter.probe = verdict.probe and self._deferred
        self._add(key, letter)
        if step != _ARRIVED:
            self._stray(key, letter)
        if not self._deferred and self._breakers:
            self._breakers.record_success(_HERE, at_ms)
        return ""

    def _budget(self, told: dict[str, Any], ttl: int) -> Budget:
        max_hops = told["max_hops"]
        new, was = self._in_force.settings.max_hops, self._in_force.recorded_max_hops
        if new != was:
            max_hops = new if max_hops == was else min(new, max_hops)
        chain = (_HERE,) if told["cycle"] else ()
        return Budget(
            hop_count=told["hop_count"],
            max_hops=max_hops,
            ancestor_chain=chain,
            ttl=ttl,
            call_budget_remaining=told["calls"],
        )

    def _make_room(self, verdict: DeliveryVerdict) -> None:
        pending = [(key, letter) for key, letter in self.live.items() if not letter.leased]
        sizes = [(letter.sender, letter.size) for _, letter in pending]
        for position in make_room(verdict, _HERE, sizes, self._breakers):
            self._abandon(pending[position][0])

    # What history tells of messages

    def _lease(self, row: Row) -> None:
        letter = self.live.get(row[6])
        if letter is not None:
            letter.leased = True

    def _return(self, row: Row) -> None:
        letter = self.live.get(row[6])
        if letter is not None:
            letter.leased = False

    def _ack(self, row: Row) -> None:
        self._known.pop(row[6], None)
        letter = self._remove(row[6])
        if letter is not None and self._breakers:
            self._succeed(letter, row[1])
        if self._strays:
            self._drain(row[1])

    def _raised(self, row: Row) -> None:
        letter = self._remove(row[6])
        if letter is not None:
            self._breakers.record_outcome(_HERE, ok=False, probe=letter.probe, now_ms=row[1])

    def _gone(self, row: Row) -> None:
        self._abandon(row[6])

    def _evicted(self, row: Row) -> None:
        letter = self.live.get(row[6])
        if letter is not None:
            letter.leased = False
            self._stray(row[6], letter)

    def _stopped(self, row: Row) -> None:
        self._known[row[6]] = Letter(row[7], row[3], row[5])

    def _redriven(self, row: Row) -> None:
        known = self._known.get(row[6])
        if known is not None:
            self._add(row[6], Letter(known.sender, known.size, known.ttl))

    def _reset(self, row: Row) -> None:
        self._breakers.reset(_HERE)

    # The mailbox

    def _add(self, key: str, letter: Letter) -> None:
        if key in self.live:
            self._remove(key)  # the same id again: one place in the mailbox
        self.live[key] = letter
        self.occupancy.add(letter.sender, letter.size)

    def _remove(self, key: str) -> Letter | None:
        letter = self.live.pop(key, None)
        if letter is not None:
            self.occupancy.remove(letter.sender, letter.size)
            if letter.stray:
                del self._strays[key]
        return letter

    def _abandon(self, key: str) -> None:
        letter = self._remove(key)
        if letter is not None and letter.probe:
            self._breakers.release_probe(_HERE)

    def _stray(self, key: str, letter: Letter) -> None:
        letter.stray = True
        self._strays[key] = letter
        self._strays_ttl = min(self._strays_ttl, letter.ttl)

    def _expire_strays(self, at_ms: int) -> None:
        for key in [key for key, letter in self._strays.items() if letter.ttl < at_ms]:
            self._abandon(key)
        left = (letter.ttl for letter in self._strays.values())
        self._strays_ttl = min(left, default=_ENDLESS)

    def _drain(self, at_ms: int) -> None:
        for key, letter in [one for one in self.live.items() if one[1].stray]:
            if letter.ttl < at_ms:
                self._abandon(key)
            else:
                self._remove(key)
                self._succeed(letter, at_ms)
        self._strays_ttl = _ENDLESS

    # The breaker

    def _succeed(self, letter: Letter, at_ms: int) -> None:
        self._breakers.record_outcome(_HERE, ok=True, probe=letter.probe, now_ms=at_ms)
