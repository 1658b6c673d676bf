"""Challenges: valid once, for a minute, bounded in number."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost.server.identity.challenges import Challenges
from waypost.wire.handshake import from_text

MINUTE = 60_000


def test_a_challenge_is_thirty_two_random_bytes() -> None:
    challenges = Challenges()
    nonces = {challenges.issue(0) for _ in range(100)}
    assert len(nonces) == 100
    assert all(from_text(one, 32) for one in nonces)


def test_a_challenge_is_redeemed_once() -> None:
    challenges = Challenges()
    nonce = challenges.issue(0)
    assert challenges.redeem(nonce, 1)
    assert not challenges.redeem(nonce, 1)


@pytest.mark.parametrize("nonce", ["", "x", "A" * 43])
def test_an_unknown_nonce_is_not_redeemed(nonce: str) -> None:
    challenges = Challenges()
    challenges.issue(0)
    assert not challenges.redeem(nonce, 0)


@given(issued_at=st.integers(0, 1 << 53), age=st.integers(0, 3 * MINUTE))
@example(issued_at=0, age=MINUTE)
@example(issued_at=0, age=MINUTE + 1)
def test_a_challenge_is_valid_for_a_minute(issued_at: int, age: int) -> None:
    challenges = Challenges()
    nonce = challenges.issue(issued_at)
    assert challenges.redeem(nonce, issued_at + age) is (age <= MINUTE)


def test_an_expired_challenge_is_not_revived_by_a_clock_set_back() -> None:
    challenges = Challenges()
    nonce = challenges.issue(0)
    assert not challenges.redeem(nonce, MINUTE + 1)
    assert not challenges.redeem(nonce, 0)


def test_at_the_bound_the_oldest_challenge_is_dropped() -> None:
    challenges = Challenges(limit=3)
    nonces = [challenges.issue(0) for _ in range(5)]
    assert len(challenges) == 3
    assert [challenges.redeem(one, 0) for one in nonces] == [False, False, True, True, True]


def test_expired_challenges_take_no_room() -> None:
    challenges = Challenges()
    for _ in range(10):
        challenges.issue(0)
    challenges.issue(MINUTE + 1)
    assert len(challenges) == 1


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["issue", "redeem"]), st.integers(0, 30_000), st.integers(0, 50)),
        max_size=60,
    )
)
def test_a_challenge_is_valid_once_within_a_minute_in_any_sequence(
    steps: list[tuple[str, int, int]],
) -> None:
    challenges = Challenges(limit=5)
    now, issued, spent = 0, list[tuple[str, int]](), set[str]()
    for what, wait, which in steps:
        now += wait
        if what == "issue" or not issued:
            issued.append((challenges.issue(now), now))
            continue
        nonce, at = issued[which % len(issued)]
        newer = len(issued) - 1 - which % len(issued)
        if challenges.redeem(nonce, now):
            assert nonce not in spent
            assert now - at <= MINUTE
        elif nonce not in spent and now - at <= MINUTE:
            assert newer >= 5, "only the bound may take away a living challenge"
        spent.add(nonce)
        assert len(challenges) <= 5
