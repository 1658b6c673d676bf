"""Occupancy equals a recount of the mailbox; eviction takes the heaviest sender's oldest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.occupancy import Occupancy, choose_victims, heaviest

SENDERS = st.sampled_from(["a", "b", "c"])
MESSAGES = st.lists(st.tuples(SENDERS, st.integers(0, 9)), max_size=14)


def mailbox_of(messages: list[tuple[str, int]]) -> Occupancy:
    mailbox = Occupancy()
    for sender, size in messages:
        mailbox.add(sender, size)
    return mailbox


def naive_victims(evictable: list[tuple[str, int]], needed: int) -> list[int]:
    """Recount the heaviest sender after every eviction."""
    left, victims = list(enumerate(evictable)), []
    while sum(evictable[at][1] for at in victims) < needed:
        if not left:
            return []
        weights = {who: sum(s for _, (w, s) in left if w == who) for _, (who, _) in left}
        heaviest_of_all = sorted(weights, key=lambda who: (-weights[who], who))[0]
        oldest = next(at for at, (who, _) in left if who == heaviest_of_all)
        victims.append(oldest)
        left = [(at, message) for at, message in left if at != oldest]
    return victims


# --- Counting ------------------------------------------------------------------------------------


def test_an_empty_mailbox_has_no_messages_of_any_sender() -> None:
    mailbox = Occupancy()
    assert (mailbox.depth, mailbox.bytes, mailbox.held_by("a")) == (0, 0, (0, 0))


def test_messages_are_counted_in_total_and_by_sender() -> None:
    mailbox = mailbox_of([("a", 10), ("b", 5), ("a", 1)])
    assert (mailbox.depth, mailbox.bytes) == (3, 16)
    assert mailbox.held_by("a") == (2, 11)
    assert mailbox.held_by("b") == (1, 5)


def test_a_sender_with_nothing_left_takes_no_memory() -> None:
    mailbox = mailbox_of([("a", 10), ("b", 5)])
    mailbox.remove("a", 10)
    assert list(mailbox.by_sender) == ["b"]


def test_asking_about_a_stranger_takes_no_memory() -> None:
    mailbox = Occupancy()
    mailbox.held_by("a")
    assert not mailbox.by_sender


def test_removing_an_unknown_message_is_an_error_and_changes_nothing() -> None:
    mailbox = mailbox_of([("a", 10)])
    with pytest.raises(KeyError):
        mailbox.remove("b", 10)
    assert (mailbox.depth, mailbox.bytes) == (1, 10)


@given(st.lists(st.tuples(SENDERS, st.integers(0, 9)) | st.integers(0, 20), max_size=50))
def test_occupancy_always_equals_a_recount(steps: list[tuple[str, int] | int]) -> None:
    mailbox, present = Occupancy(), []
    for step in steps:
        if isinstance(step, tuple):
            mailbox.add(*step)
            present.append(step)
        elif present:
            mailbox.remove(*present.pop(step % len(present)))
        assert mailbox.depth == len(present)
        assert mailbox.bytes == sum(size for _, size in present)
        assert mailbox.by_sender == {
            who: (sum(w == who for w, _ in present), sum(s for w, s in present if w == who))
            for who, _ in present
        }


# --- Eviction ------------------------------------------------------------------------------------


def test_the_heaviest_sender_has_the_most_bytes_not_the_most_messages() -> None:
    assert heaviest({"many": 3, "large": 9}) == "large"


def test_among_equally_heavy_senders_the_first_by_name_is_taken() -> None:
    assert heaviest({"b": 5, "a": 5, "c": 1}) == "a"


def test_the_oldest_message_of_the_heaviest_sender_is_evicted_first() -> None:
    evictable = [("small", 1), ("large", 5), ("small", 1), ("large", 5)]
    assert choose_victims(evictable, 3) == [1]


def test_the_next_victim_is_of_the_sender_that_is_then_the_heaviest() -> None:
    assert choose_victims([("b", 4), ("a", 3), ("a", 3), ("b", 1)], 7) == [1, 0]


def test_a_small_message_survives_the_backlog_of_another() -> None:
    evictable = [("quiet", 1), *[("loud", 10)] * 5]
    assert 0 not in choose_victims(evictable, 50)


def test_nothing_is_evicted_if_nothing_is_needed() -> None:
    assert choose_victims([("a", 5)], 0) == []


def test_nothing_is_evicted_if_everything_would_not_be_enough() -> None:
    assert choose_victims([("a", 5), ("b", 5)], 11) == []
    assert choose_victims([], 1) == []


def test_everything_is_evicted_when_exactly_everything_is_needed() -> None:
    assert sorted(choose_victims([("a", 5), ("b", 5)], 10)) == [0, 1]


@given(MESSAGES, st.integers(0, 60))
def test_victims_are_those_of_a_recount_after_every_eviction(
    evictable: list[tuple[str, int]], needed: int
) -> None:
    assert choose_victims(evictable, needed) == naive_victims(evictable, needed)


@given(MESSAGES, st.integers(1, 60))
def test_victims_free_enough_and_none_is_superfluous(
    evictable: list[tuple[str, int]], needed: int
) -> None:
    victims = choose_victims(evictable, needed)
    freed = [evictable[at][1] for at in victims]
    assert len(set(victims)) == len(victims)
    if sum(size for _, size in evictable) < needed:
        assert victims == []
    else:
        assert sum(freed[:-1]) < needed <= sum(freed)


@given(MESSAGES, st.integers(1, 60))
def test_each_sender_loses_its_oldest_messages_first(
    evictable: list[tuple[str, int]], needed: int
) -> None:
    victims = choose_victims(evictable, needed)
    for sender in {who for who, _ in evictable}:
        own = [at for at, (who, _) in enumerate(evictable) if who == sender]
        lost = [at for at in victims if evictable[at][0] == sender]
        assert lost == own[: len(lost)]
