"""Whatever breaks and whenever: nothing is lost, nothing is doubled, no send is forgotten."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.flaky_link import Unsteady

WIRE = ["come_back", "flow", "flow", "drop", "connect", "write", "carry_up", "carry_down"]
LIFE = [*WIRE, "new_mail", "send", "ack", "lease_times_out"]
steps = st.lists(st.sampled_from(LIFE), min_size=20, max_size=100)
moody_steps = st.lists(st.sampled_from([*LIFE, "nack", "release"]), min_size=20, max_size=100)


def live(steps: list[str]) -> Unsteady:
    world = Unsteady()
    world.come_back()
    for step in steps:
        getattr(world, step)()
    world.settle()
    return world


@settings(max_examples=300)
@given(steps)
def test_the_application_gets_every_message_once(steps: list[str]) -> None:
    world = live(steps)
    assert sorted(world.handed, key=number) == [f"mail-{one + 1}" for one in range(world.mail)]


@settings(max_examples=300)
@given(steps)
def test_every_send_is_answered_once_and_stored_once_in_order(steps: list[str]) -> None:
    world = live(steps)
    assert world.unanswered == {}
    assert len(world.answers) == steps.count("send")
    assert world.stored == sorted(world.stored)
    assert sorted(world.answers) == world.stored


@settings(max_examples=300)
@given(moody_steps)
def test_a_message_comes_again_only_after_it_was_given_back(steps: list[str]) -> None:
    world = live(steps)
    handed, given_back = Counter(world.handed), Counter(world.given_back)
    assert all(handed[one] <= given_back[one] + 1 for one in handed)
    assert set(handed) == {f"mail-{one + 1}" for one in range(world.mail)}


@settings(max_examples=300)
@given(moody_steps)
def test_in_the_end_everything_is_confirmed_and_nothing_acked_comes_again(
    steps: list[str],
) -> None:
    world = live(steps)
    assert world.mailbox == []
    assert len(world.acked) == len(set(world.acked)) == world.mail


def number(name: str) -> int:
    return int(name.removeprefix("mail-"))
