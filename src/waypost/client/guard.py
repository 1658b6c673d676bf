"""The messaging guard for applications: the decisions of `policy.guard`, with a clock, a lock, a
log, counters and a timer.

Rule 1  Every change of a circuit's state is logged with the agent's name and counted once.
Rule 2  Idle senders and closed idle circuits are swept every five minutes, on a thread that keeps
        neither the guard nor the process alive. A sweep changes no state.
Rule 3  Thread-safe. Its time never goes back, even if the clock does.

This module does not read the environment. An application writes
`MessagingGuard(load_messaging_guard_config(os.environ))`.
"""

import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable

from waypost.policy.breakers import CircuitState, Transition
from waypost.policy.guard import (
    SWEEP_INTERVAL_MS,
    GuardPolicy,
    GuardRejectionReason,
    GuardResult,
    MessagingGuardConfig,
    Swept,
)

log = logging.getLogger("waypost.guard")

TRANSITIONS = "circuit_breaker_transitions"
REJECTIONS = {
    GuardRejectionReason.CIRCUIT_OPEN: "circuit_open_rejections",
    GuardRejectionReason.RATE_LIMITED: "agent_rate_limit_rejections",
}
NOTHING_SWEPT = Swept(senders=0, circuits=0)


def wall_clock_us() -> int:
    """Return the microseconds since the epoch, from the machine's clock."""
    return time.time_ns() // 1000


class MessagingGuard:
    """Rate limit and circuit breakers for calls between agents.

    Call `check` before a call and `record_success` or `record_failure` after it. An allowed call
    whose outcome is never recorded keeps a half-open circuit waiting until the sweep.
    """

    def __init__(
        self,
        config: MessagingGuardConfig | None = None,
        clock: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._policy = GuardPolicy(config)
        self._clock = clock
        self._latest_ms = 0
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        # Held while the guard lives. A lock, not an Event: the garbage collector may release it
        # at any point of any thread, and releasing a lock never blocks.
        running = threading.Lock()
        running.acquire()
        self._end = weakref.finalize(self, running.release)
        self._end.atexit = False
        self._sweeper = threading.Thread(
            target=_sweep_until_released,
            args=(weakref.ref(self), running),
            name="waypost-guard-sweep",
            daemon=True,
        )
        self._sweeper.start()

    @property
    def config(self) -> MessagingGuardConfig:
        """Return the limits of this guard."""
        return self._policy.config

    def check(self, from_agent: str, to_agent: str) -> GuardResult:
        """Return whether `from_agent` may call `to_agent` now; count the call if so."""
        with self._lock:
            result, moved = self._policy.check(from_agent, to_agent, self._now_ms())
            if result.reason is not None:
                self._counters[REJECTIONS[result.reason]] += 1
            self._count(moved)
        _report(moved)
        return result

    def record_success(self, to_agent: str) -> None:
        """Record a successful call to `to_agent`."""
        with self._lock:
            moved = self._policy.record_success(to_agent, self._now_ms())
            self._count(moved)
        _report(moved)

    def record_failure(self, to_agent: str) -> None:
        """Record a failed call to `to_agent`."""
        with self._lock:
            moved = self._policy.record_failure(to_agent, self._now_ms())
            self._count(moved)
        _report(moved)

    def get_circuit_state(self, to_agent: str) -> CircuitState:
        """Return the state of the circuit to `to_agent`; CLOSED for an unknown agent."""
        with self._lock:
            state, moved = self._policy.circuit_state(to_agent, self._now_ms())
            self._count(moved)
        _report(moved)
        return state

    def get_circuit_states(self) -> dict[str, CircuitState]:
        """Return the states of all circuits that are not closed, by agent."""
        with self._lock:
            states, moves = self._policy.circuit_states(self._now_ms())
            self._count(*moves)
        for moved in moves:
            _report(moved)
        return states

    def calls_in_window(self, from_agent: str) -> int:
        """Return how many calls of `from_agent` count now; `config` has the limit."""
        with self._lock:
            return self._policy.calls_in_window(from_agent, self._now_ms())

    def reset_circuit(self, to_agent: str) -> None:
        """Close the circuit to `to_agent`; do nothing for an unknown agent."""
        with self._lock:
            moved = self._policy.reset_circuit(to_agent)
            self._count(moved)
        _report(moved)

    def reset_all(self) -> None:
        """Close every circuit and clear every sender's window. Keep the counters."""
        with self._lock:
            moves = self._policy.reset_all()
            self._count(*moves)
        for moved in moves:
            _report(moved)

    def sweep(self) -> Swept:
        """Drop idle senders and closed idle circuits now, as the timer does every five minutes."""
        with self._lock:
            swept = self._policy.sweep(self._now_ms())
        if swept != NOTHING_SWEPT:
            log.debug(
                "swept %d idle senders, %d closed circuits, %d probes without an outcome",
                swept.senders,
                swept.circuits,
                swept.probes,
            )
        return swept

    def counters(self) -> dict[str, int]:
        """Return the number of state changes and rejections since this guard was created."""
        with self._lock:
            return {name: self._counters[name] for name in (TRANSITIONS, *REJECTIONS.values())}

    def stop(self) -> None:
        """Stop the timer. The guard itself keeps working. Idempotent."""
        self._end()
        if self._sweeper is not threading.current_thread():
            self._sweeper.join(timeout=1.0)

    def _now_ms(self) -> int:
        self._latest_ms = max(self._latest_ms, self._clock() // 1000)
        return self._latest_ms

    def _count(self, *moves: Transition | None) -> None:
        self._counters[TRANSITIONS] += sum(moved is not None for moved in moves)


def _report(moved: Transition | None) -> None:
    """Log a change of state. Called without the lock: a log handler may use the guard."""
    if moved is None:
        return
    level = logging.WARNING if moved.after is CircuitState.OPEN else logging.INFO
    agent, why = moved.endpoint, moved.occasion
    log.log(level, "circuit to %s: %s -> %s (%s)", agent, moved.before, moved.after, why)


def _sweep_until_released(
    guard_ref: "weakref.ref[MessagingGuard]", running: threading.Lock
) -> None:
    while not running.acquire(timeout=SWEEP_INTERVAL_MS / 1000):
        guard = guard_ref()
        if guard is None:
            return
        guard.sweep()
        del guard  # this thread must not keep it alive for another interval
