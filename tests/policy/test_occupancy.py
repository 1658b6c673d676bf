"""Occupancy equals a recount of the mailbox; eviction takes the heaviest sender's oldest."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.occupancy import Occupancy, choose_purges, choose_victims, heaviest
from waypost.policy.tiers import Tier

SENDERS = st.sampled_from(["a", "b", "c"])
RANKED = st.lists(st.tuples(st.integers(1, 3), SENDERS, st.integers(0, 9)), max_size=14)
Candidate = tuple[int, str, int]


class Counted(NamedTuple):
    sender: str
    size: int
    tier: int = Tier.ACTIVE


def mailbox_of(messages: list[tuple[str, int]]) -> Occupancy:
    mailbox = Occupancy()
    for sender, size in messages:
        mailbox.add(sender, size)
    return mailbox


def naive_victims(candidates: list[Candidate], needed: int) -> list[int]:
    """Recount the heaviest sender of the lowest rank after every removal."""
    left, victims = list(enumerate(candidates)), []
    while sum(candidates[at][2] for at in victims) < needed:
        if not left:
            return []
        lowest = min(rank for _, (rank, _, _) in left)
        in_rank = [(at, who, size) for at, (rank, who, size) in left if rank == lowest]
        weights = {who: sum(s for _, w, s in in_rank if w == who) for _, who, _ in in_rank}
        heaviest_of_all = sorted(weights, key=lambda who: (-weights[who], who))[0]
        oldest = next(at for at, who, _ in in_rank if who == heaviest_of_all)
        victims.append(oldest)
        left = [(at, message) for at, message in left if at != oldest]
    return victims


def same_rank(*messages: tuple[str, int]) -> list[Candidate]:
    return [(1, *message) for message in messages]


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
    mailbox.remove_all([Counted("a", 10)])
    assert list(mailbox.by_sender) == ["b"]


def test_asking_about_a_stranger_takes_no_memory() -> None:
    mailbox = Occupancy()
    mailbox.held_by("a")
    assert not mailbox.by_sender


def test_removing_an_unknown_message_is_an_error_and_changes_nothing() -> None:
    mailbox = mailbox_of([("a", 10)])
    with pytest.raises(KeyError):
        mailbox.remove_all([Counted("b", 10)])
    assert (mailbox.depth, mailbox.bytes) == (1, 10)


@given(
    st.lists(
        st.tuples(SENDERS, st.integers(0, 9), st.integers(1, 3)) | st.integers(0, 20), max_size=50
    )
)
def test_occupancy_always_equals_a_recount(steps: list[tuple[str, int, int] | int]) -> None:
    mailbox, present = Occupancy(), []
    for step in steps:
        if isinstance(step, tuple):
            mailbox.add(*step)
            present.append(step)
        elif present:
            first = step % len(present)
            mailbox.remove_all([Counted(*one) for one in present[first : first + 2]])
            del present[first : first + 2]
        assert mailbox.depth == len(present)
        assert mailbox.bytes == sum(size for _, size, _ in present)
        assert mailbox.by_sender == {
            who: (sum(w == who for w, _, _ in present), sum(s for w, s, _ in present if w == who))
            for who, _, _ in present
        }
        strangers = [size for _, size, tier in present if tier == 1]
        assert (mailbox.strangers_depth, mailbox.strangers_bytes) == (
            len(strangers),
            sum(strangers),
        )


# --- Eviction ------------------------------------------------------------------------------------


def test_the_heaviest_sender_has_the_most_bytes_not_the_most_messages() -> None:
    assert heaviest({"many": 3, "large": 9}) == "large"


def test_among_equally_heavy_senders_the_first_by_name_is_taken() -> None:
    assert heaviest({"b": 5, "a": 5, "c": 1}) == "a"


def test_the_oldest_message_of_the_heaviest_sender_is_evicted_first() -> None:
    evictable = same_rank(("small", 1), ("large", 5), ("small", 1), ("large", 5))
    assert choose_victims(evictable, 3) == [1]


def test_the_next_victim_is_of_the_sender_that_is_then_the_heaviest() -> None:
    assert choose_victims(same_rank(("b", 4), ("a", 3), ("a", 3), ("b", 1)), 7) == [1, 0]


def test_a_small_message_survives_the_backlog_of_another() -> None:
    evictable = same_rank(("quiet", 1), *[("loud", 10)] * 5)
    assert 0 not in choose_victims(evictable, 50)


def test_a_higher_rank_is_taken_only_when_no_lower_one_is_left() -> None:
    candidates = [(2, "b", 90), (1, "a", 1), (3, "c", 5), (1, "d", 2)]
    assert choose_victims(candidates, 3) == [3, 1]
    assert choose_victims(candidates, 4) == [3, 1, 0]
    assert choose_victims(candidates, 94) == [3, 1, 0, 2]


def test_nothing_is_evicted_if_nothing_is_needed() -> None:
    assert choose_victims(same_rank(("a", 5)), 0) == []


def test_nothing_is_evicted_if_everything_would_not_be_enough() -> None:
    assert choose_victims(same_rank(("a", 5), ("b", 5)), 11) == []
    assert choose_victims([], 1) == []


def test_everything_is_evicted_when_exactly_everything_is_needed() -> None:
    assert sorted(choose_victims(same_rank(("a", 5), ("b", 5)), 10)) == [0, 1]


@given(RANKED, st.integers(0, 60))
def test_victims_are_those_of_a_recount_after_every_eviction(
    evictable: list[Candidate], needed: int
) -> None:
    assert choose_victims(evictable, needed) == naive_victims(evictable, needed)


@given(RANKED, st.integers(1, 60))
def test_victims_free_enough_and_none_is_superfluous(
    evictable: list[Candidate], needed: int
) -> None:
    victims = choose_victims(evictable, needed)
    freed = [evictable[at][2] for at in victims]
    assert len(set(victims)) == len(victims)
    if sum(size for _, _, size in evictable) < needed:
        assert victims == []
    else:
        assert sum(freed[:-1]) < needed <= sum(freed)


@given(RANKED, st.integers(1, 60))
def test_each_sender_loses_its_oldest_messages_first(
    evictable: list[Candidate], needed: int
) -> None:
    victims = choose_victims(evictable, needed)
    for group in {(rank, who) for rank, who, _ in evictable}:
        own = [at for at, (rank, who, _) in enumerate(evictable) if (rank, who) == group]
        lost = [at for at in victims if evictable[at][:2] == group]
        assert lost == own[: len(lost)]


# --- Dead letters --------------------------------------------------------------------------------


def test_dead_letters_of_strangers_are_purged_first_and_evicted_ones_last() -> None:
    dead = [
        (True, True, "friend"),
        (True, False, "friend"),
        (False, True, "stranger"),
        (False, False, "stranger"),
    ]
    assert choose_purges(dead, 4) == [3, 2, 1, 0]


def test_the_sender_with_the_most_dead_letters_loses_its_oldest() -> None:
    dead = [(False, False, one) for one in ("few", "many", "many", "many", "few")]
    assert choose_purges(dead, 2) == [1, 0]
    assert choose_purges(dead, 1) == [1]
