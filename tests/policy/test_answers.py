"""Answers: they return along the chain of their question, and never enlarge a budget."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.budgets import (
    Budget,
    create_default_budget,
    inherited,
    is_answer,
    overdrawn,
    shrink,
    spend,
)

NOW = 1_700_000_000_000
A, B, C, D = (f"agent.{name}" for name in "abcd")
AGENTS = (A, B, C, D)


class Delivered(msgspec.Struct, frozen=True):
    """A message as delivered to `recipient`."""

    sender: str
    recipient: str
    budget: Budget
    reply_to: str | None = None
    answer: bool = False
    parent: "Delivered | None" = None


def deliver(
    sender: str, to: str, parent: Delivered | None = None, reply_to: str | None = None
) -> Delivered | str:
    """Return the delivered message, or why its budget does not allow it."""
    budget, answer = create_default_budget(NOW), False
    if parent is not None:
        budget = shrink(budget, inherited(parent, sender, to))
        answer = is_answer(parent, sender, to)
    problem = overdrawn(budget, to, NOW, answer=answer)
    if problem is not None:
        return problem
    return Delivered(sender, to, spend(budget, to, answer=answer), reply_to, answer, parent)


def asked(*names: str, reply_to: str | None = None) -> Delivered:
    """Return the last message of a chain in which each agent asks the next."""
    message: Delivered | None = None
    for sender, to in itertools.pairwise(names):
        given = deliver(sender, to, message, reply_to)
        assert isinstance(given, Delivered)
        message = given
    assert message is not None
    return message


def answered(question: Delivered, to: str | None = None) -> Delivered:
    given = deliver(question.recipient, to or question.sender, question)
    assert isinstance(given, Delivered)
    return given


def test_an_answer_has_the_hops_and_the_chain_of_before_the_question() -> None:
    question = asked(A, B, C)
    answer = answered(question)
    assert answer.answer
    assert (answer.budget.hop_count, answer.budget.ancestor_chain) == (1, (B,))
    assert answer.budget.call_budget_remaining == question.budget.call_budget_remaining - 1
    assert answer.budget.ttl == question.budget.ttl


def test_the_first_asker_gets_its_answer_at_depth_zero() -> None:
    answer = answered(asked(A, B))
    assert (answer.budget.hop_count, answer.budget.ancestor_chain) == (0, ())
    assert answer.budget.call_budget_remaining == 8


def test_a_message_back_to_the_sender_of_an_answer_is_a_new_question() -> None:
    again = answered(answered(asked(A, B)))
    assert not again.answer
    assert (again.budget.hop_count, again.budget.ancestor_chain) == (1, (B,))


def test_two_agents_take_turns_until_the_calls_are_spent() -> None:
    message, turns = asked(A, B), 1
    while not isinstance(given := deliver(message.recipient, message.sender, message), str):
        message, turns = given, turns + 1
    assert (turns, given) == (10, "call budget exhausted")


def test_two_agents_take_turns_even_with_a_single_hop() -> None:
    budget = create_default_budget(NOW, max_hops=1)
    message = Delivered(A, B, spend(budget, B))
    for _ in range(8):
        message = answered(message)
    assert message.budget.hop_count <= 1


def test_each_of_two_answers_has_one_call_less_than_the_question() -> None:
    question = asked(A, B)
    first, second = answered(question), answered(question)
    assert first == second
    assert first.budget.call_budget_remaining == question.budget.call_budget_remaining - 1


def test_a_reply_address_gets_the_answer_as_the_sender_would() -> None:
    question = asked(A, B, reply_to=D)
    assert answered(question, D).budget == answered(question, A).budget


@pytest.mark.parametrize(
    ("sender", "to"),
    [
        (B, C),  # to a third agent
        (C, A),  # from an agent that the question was not delivered to
        (B, "agent.*"),  # to a pattern
        (B, B),  # to itself
    ],
)
def test_any_other_message_is_no_answer(sender: str, to: str) -> None:
    question = asked(A, B)
    assert not is_answer(question, sender, to)
    assert inherited(question, sender, to) == question.budget


def test_a_message_to_oneself_is_no_question_to_answer() -> None:
    assert deliver(A, A, asked(A, A)) == f"cycle detected: {A} already in chain"


def test_a_ring_of_three_is_a_cycle() -> None:
    assert deliver(A, B, asked(A, B, C, A)) == f"cycle detected: {B} already in chain"


def test_a_ring_of_three_is_a_cycle_after_a_dialogue_too() -> None:
    dialogue = answered(answered(asked(A, B)))
    third = deliver(B, C, dialogue)
    assert isinstance(third, Delivered)
    back = deliver(C, A, third)
    assert isinstance(back, Delivered)
    assert deliver(A, B, back) == f"cycle detected: {B} already in chain"


def test_taking_turns_adds_no_depth_to_those_who_are_asked_next() -> None:
    message = asked(A, B)
    for _ in range(3):
        message = answered(answered(message))
    assert message.recipient == B
    asked_next = deliver(B, C, message)
    assert isinstance(asked_next, Delivered)
    assert asked_next.budget.ancestor_chain == (B, C)
    assert asked_next.budget.hop_count == 2


STEPS = st.lists(
    st.tuples(
        st.integers(0, 30),  # the message it follows from, if there are so many
        st.sampled_from(AGENTS),
        st.sampled_from((None, *AGENTS)),
        st.booleans(),
    ),
    max_size=40,
)


@given(STEPS)
def test_in_every_tree_of_messages_calls_fall_and_depth_is_bounded(
    steps: list[tuple[int, str, str | None, bool]],
) -> None:
    tree: list[Delivered] = []
    for at, to, reply_to, goes_back in steps:
        parent = tree[at] if at < len(tree) else None
        sender = parent.recipient if parent is not None else A
        wanted = parent.sender if parent is not None and goes_back else to
        given = deliver(sender, wanted, parent, reply_to)
        if isinstance(given, Delivered):
            tree.append(given)
    for message in tree:
        budget, parent = message.budget, message.parent
        assert budget.hop_count <= budget.max_hops
        assert len(set(budget.ancestor_chain)) == len(budget.ancestor_chain) == budget.hop_count
        if parent is not None:
            assert budget.call_budget_remaining < parent.budget.call_budget_remaining
            assert budget.ttl <= parent.budget.ttl
            assert budget.max_hops <= parent.budget.max_hops
