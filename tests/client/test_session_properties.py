"""Whatever breaks at any time: no message is lost or duplicated, and every send is answered."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.flaky_link import FlakyLink

LINK = ["reconnect", "flow", "flow", "drop", "connect", "write", "carry_up", "carry_down"]
STEPS = [*LINK, "new_message", "send", "ack", "lease_times_out"]
steps = st.lists(st.sampled_from(STEPS), min_size=20, max_size=100)
steps_with_returns = st.lists(
    st.sampled_from([*STEPS, "nack", "release"]), min_size=20, max_size=100
)


def run(steps: list[str]) -> FlakyLink:
    world = FlakyLink()
    world.reconnect()
    for step in steps:
        getattr(world, step)()
    world.run_until_idle()
    return world


@settings(max_examples=300)
@given(steps)
def test_the_application_gets_every_message_once(steps: list[str]) -> None:
    world = run(steps)
    assert sorted(world.emitted, key=number) == [f"mail-{one + 1}" for one in range(world.mail)]


@settings(max_examples=300)
@given(steps)
def test_every_send_is_answered_once_and_stored_once_in_order(steps: list[str]) -> None:
    world = run(steps)
    assert world.unanswered == {}
    assert len(world.answers) == steps.count("send")
    assert world.stored == sorted(world.stored)
    assert sorted(world.answers) == world.stored


@settings(max_examples=300)
@given(steps_with_returns)
def test_a_message_is_delivered_again_only_after_it_was_nacked_or_released(
    steps: list[str],
) -> None:
    world = run(steps)
    emitted, returned = Counter(world.emitted), Counter(world.returned)
    assert all(emitted[one] <= returned[one] + 1 for one in emitted)
    assert set(emitted) == {f"mail-{one + 1}" for one in range(world.mail)}


@settings(max_examples=300)
@given(steps_with_returns)
def test_in_the_end_everything_is_acked_and_nothing_acked_is_delivered_again(
    steps: list[str],
) -> None:
    world = run(steps)
    assert world.mailbox == []
    assert len(world.acked) == len(set(world.acked)) == world.mail


def number(name: str) -> int:
    return int(name.removeprefix("mail-"))
