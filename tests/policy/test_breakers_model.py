"""Circuit breakers walked at random beside a model that shares no code with them."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from waypost.policy.breakers import (
    TRANSITIONS,
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    Transition,
)

NAMES = st.sampled_from(["a", "b"])


@dataclass
class Model:
    """A model of one breaker: consecutive failures, time of opening, outcomes of probes."""

    tripped_at: int | None = None
    probing: bool = False
    failures: int = 0
    good_probes: int = 0
    slots_taken: int = 0

    @property
    def state(self) -> str:
        if self.tripped_at is None:
            return "CLOSED"
        return "HALF_OPEN" if self.probing else "OPEN"

    def trip(self, now: int) -> None:
        self.tripped_at, self.probing, self.good_probes, self.slots_taken = now, False, 0, 0


class BreakersAgainstModel(RuleBasedStateMachine):
    """Checks, outcomes, resets and pauses in any order: breakers and models agree."""

    @initialize(
        threshold=st.integers(1, 3),
        cooldown=st.integers(1, 20),
        probes=st.integers(1, 3),
        to_close=st.integers(1, 3),
    )
    def set_up(self, threshold: int, cooldown: int, probes: int, to_close: int) -> None:
        self.config = CircuitBreakerConfig(
            failure_threshold=threshold,
            cooldown_ms=cooldown,
            half_open_probe_count=probes,
            success_to_close=to_close,
        )
        self.breakers = CircuitBreakers(self.config)
        self.models = {"a": Model(), "b": Model()}
        self.now = 0

    @rule(ms=st.integers(0, 25))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(name=NAMES)
    def check(self, name: str) -> None:
        model, before = self.models[name], self.models[name].state
        result = self.breakers.check(name, self.now)
        if model.tripped_at is None:
            expected = True
        else:
            left = model.tripped_at + self.config.cooldown_ms - self.now
            model.probing = model.probing or left <= 0
            expected = model.probing and model.slots_taken < self.config.half_open_probe_count
            model.slots_taken += expected
            assert result.retry_after_ms == (0 if model.probing else left)
        assert result.allowed == expected
        assert result.state == model.state
        assert result.probe == (expected and model.probing)
        assert (result.reason is None) == expected
        self.agree_on_move(name, before, result.transition)

    @rule(name=NAMES)
    def success(self, name: str) -> None:
        model, before = self.models[name], self.models[name].state
        moved = self.breakers.record_success(name, self.now)
        if model.state == "CLOSED":
            model.failures = 0
        elif model.state == "HALF_OPEN":
            model.good_probes += 1
            model.slots_taken = max(0, model.slots_taken - 1)
            if model.good_probes == self.config.success_to_close:
                model = self.models[name] = Model()
        self.agree_on_move(name, before, moved)

    @rule(name=NAMES)
    def failure(self, name: str) -> None:
        model, before = self.models[name], self.models[name].state
        moved = self.breakers.record_failure(name, self.now)
        model.failures += 1
        threshold_met = model.failures >= self.config.failure_threshold
        if model.state == "HALF_OPEN" or (model.state == "CLOSED" and threshold_met):
            model.trip(self.now)
        self.agree_on_move(name, before, moved)

    @rule(name=NAMES)
    def give_back_a_probe(self, name: str) -> None:
        self.breakers.release_probe(name)
        self.models[name].slots_taken = max(0, self.models[name].slots_taken - 1)

    @rule(name=NAMES)
    def reset(self, name: str) -> None:
        before = self.models[name].state
        moved = self.breakers.reset(name)
        self.models[name] = Model()
        self.agree_on_move(name, before, moved)

    def agree_on_move(self, name: str, before: str, moved: Transition | None) -> None:
        """Assert that a transition is reported exactly if the state changed, as in the table."""
        after = self.models[name].state
        assert (moved is not None) == (before != after)
        if moved is not None:
            assert (moved.endpoint, moved.before, moved.after) == (name, before, after)
            assert TRANSITIONS[moved.before, moved.occasion] is moved.after

    @invariant()
    def the_states_agree(self) -> None:
        if not hasattr(self, "breakers"):
            return
        states = self.breakers.get_states()
        for name, model in self.models.items():
            assert self.breakers.state_of(name) == model.state
            assert (name in states) == (model != Model())
            if name in states:
                seen = states[name]
                assert seen.consecutive_failures == model.failures
                assert seen.opened_at == model.tripped_at
                assert seen.half_open_successes == model.good_probes
                assert seen.probes_in_flight == model.slots_taken

    @invariant()
    def no_more_probes_than_allowed(self) -> None:
        if hasattr(self, "breakers"):
            for breaker in self.breakers.get_states().values():
                assert 0 <= breaker.probes_in_flight <= self.config.half_open_probe_count
                assert breaker.state is CircuitState.HALF_OPEN or breaker.probes_in_flight == 0


TestBreakersAgainstModel = BreakersAgainstModel.TestCase


@given(
    st.integers(1, 4), st.lists(st.sampled_from(["ask", "went well", "given back"]), max_size=40)
)
def test_probe_slots_are_neither_exceeded_nor_lost(count: int, steps: list[str]) -> None:
    """Callers that end every probe can always use exactly `count` slots."""
    never = 1_000_000
    config = CircuitBreakerConfig(
        failure_threshold=1, cooldown_ms=1, half_open_probe_count=count, success_to_close=never
    )
    breakers = CircuitBreakers(config)
    breakers.record_failure("a", 0)
    in_flight = 0
    for step in steps:
        if step == "ask":
            allowed = breakers.check("a", 1).allowed
            assert allowed == (in_flight < count)
            in_flight += allowed
        elif in_flight > 0:
            in_flight -= 1
            if step == "went well":
                breakers.record_success("a", 1)
            else:
                breakers.release_probe("a")
    for _ in range(in_flight):
        breakers.release_probe("a")
    assert [breakers.check("a", 1).allowed for _ in range(count + 1)] == [True] * count + [False]
