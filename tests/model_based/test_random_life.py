"""Random simulated runs: after any sequence of steps, the state equals the journal's sum.

Hypothesis shrinks a failing run to its shortest form and prints it as a program, with a blob for
`@reproduce_failure`.
"""

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.model_based.choices import (
    BUDGETS,
    CHANGES,
    DELAYS_S,
    ENDPOINTS,
    IDS,
    PATTERNS,
    PAUSES_MS,
    RESTARTS,
    SENDERS,
)
from tests.model_based.life import Life
from tests.model_based.lives import ForgetfulLife, LifeInFiles

endpoints = st.sampled_from(ENDPOINTS)
senders = st.sampled_from(SENDERS)
patterns = st.sampled_from(PATTERNS)


class Chance(RuleBasedStateMachine):
    """Lets Hypothesis choose the next step."""

    kind: ClassVar[type[Life]] = Life

    @initialize()
    def begin(self) -> None:
        self.life = self.kind()

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.end()

    @invariant()
    def everything_adds_up(self) -> None:
        if hasattr(self, "life"):
            self.life.everything_adds_up()

    @rule(
        subject=patterns,
        sender=senders,
        size=st.integers(0, 700),
        budget=st.sampled_from(BUDGETS),
        parent=st.integers(0, 5),
        message_id=st.sampled_from([None, None, None, *IDS]),
        delay=st.sampled_from([None, None, None, 0.5, 3.0, 30.0]),
    )
    def publish(self, **message: Any) -> None:
        self.life.publish(**message)

    @rule(endpoint=endpoints, sender=senders, count=st.integers(2, 7), size=st.integers(0, 700))
    def flood(self, **flood: Any) -> None:
        self.life.flood(**flood)

    @rule(subjects=st.lists(patterns, min_size=1, max_size=6), sender=senders)
    def publish_many(self, subjects: list[str], sender: str) -> None:
        self.life.publish_many(subjects, sender)

    @rule(which=st.integers(0, 2), sender=senders)
    def cancel(self, which: int, sender: str) -> None:
        self.life.cancel(which, sender)

    @rule(endpoint=endpoints, limit=st.integers(1, 6), small=st.booleans())
    def lease(self, endpoint: str, limit: int, small: bool) -> None:
        self.life.lease(endpoint, limit, small)

    @rule(endpoint=endpoints, share=st.integers(1, 3))
    def ack(self, endpoint: str, share: int) -> None:
        self.life.ack(endpoint, share)

    @rule(endpoint=endpoints, delay=st.sampled_from(DELAYS_S))
    def nack(self, endpoint: str, delay: float) -> None:
        self.life.nack(endpoint, delay)

    @rule(pattern=patterns, fails=st.booleans())
    def subscribe(self, pattern: str, fails: bool) -> None:
        self.life.subscribe(pattern, fails)

    @rule(number=st.integers(0, 3))
    def unsubscribe(self, number: int) -> None:
        self.life.unsubscribe(number)

    @rule(endpoint=endpoints, register=st.booleans())
    def change_endpoint(self, endpoint: str, register: bool) -> None:
        (self.life.register if register else self.life.unregister)(endpoint)

    @rule(milliseconds=st.sampled_from(PAUSES_MS))
    def advance(self, milliseconds: int) -> None:
        self.life.advance(milliseconds)

    @rule(which=st.integers(0, 3))
    def redrive(self, which: int) -> None:
        self.life.redrive(which)

    @rule(act=st.sampled_from(["purge", "sweep", "rebuild_index"]))
    def keep_house(self, act: str) -> None:
        getattr(self.life, act)()

    @rule(subject=endpoints)
    def signal(self, subject: str) -> None:
        self.life.signal(subject)

    @rule(change=st.sampled_from(CHANGES))
    def change_settings(self, change: dict[str, Any]) -> None:
        self.life.change_settings(change)

    @rule(how=st.sampled_from(RESTARTS))
    def restart(self, how: str) -> None:
        self.life.restart(how)


class ChanceInFiles(Chance):
    kind = LifeInFiles


class ForgetfulChance(Chance):
    kind = ForgetfulLife


@pytest.mark.slow
@pytest.mark.parametrize("chance", [Chance, ChanceInFiles, ForgetfulChance])
def test_the_state_of_a_relay_equals_the_sum_of_its_journal(chance: type[Chance]) -> None:
    run_state_machine_as_test(
        chance,
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
