"""The partition of a subject, and those of a pattern."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.partitions import partition_of, partitions_of
from waypost.policy.subjects import matches_pattern

TOKENS = st.sampled_from(["agent", "team", "a", "b", "billing", "_reply"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("subject", "of_3", "of_16", "of_64"),
    [
        ("agent.billing.refunds", 0, 13, 45),
        ("agent.billing", 0, 13, 45),
        ("agent.a", 1, 11, 43),
        ("agent", 2, 15, 63),
        ("team.ops.pager.night", 0, 0, 48),
        ("_reply.0123456789abcdef01234567", 1, 14, 14),
    ],
)
def test_the_hash_never_changes(subject: str, of_3: int, of_16: int, of_64: int) -> None:
    assert [partition_of(subject, count) for count in (3, 16, 64)] == [of_3, of_16, of_64]


def test_agents_of_one_team_share_a_partition() -> None:
    names = [f"agent.billing.{name}" for name in "abcdefghij"]
    assert len({partition_of(name, 1000) for name in ["agent.billing", *names]}) == 1


def test_teams_are_spread_evenly() -> None:
    counts = [0] * 8
    for team in range(8000):
        counts[partition_of(f"agent.team-{team}.worker", 8)] += 1
    assert 900 < min(counts) <= max(counts) < 1100


@pytest.mark.parametrize(
    ("pattern", "touches_all"),
    [
        ("agent.billing.>", False),
        ("agent.billing.*", False),
        ("agent.billing.*.x", False),
        ("agent.billing", False),
        ("agent", False),
        ("agent.*", True),
        ("agent.>", True),
        ("*.billing.x", True),
        (">", True),
        ("*", True),
    ],
)
def test_a_pattern_with_two_literal_tokens_touches_one_partition(
    pattern: str, touches_all: bool
) -> None:
    assert (partitions_of(pattern, 64) == tuple(range(64))) is touches_all
    assert len(partitions_of(pattern, 64)) == (64 if touches_all else 1)


@given(subject=SUBJECTS, wild=st.lists(st.integers(0, 3), max_size=3), count=st.integers(1, 9))
def test_every_match_of_a_pattern_is_in_one_of_its_partitions(
    subject: str, wild: list[int], count: int
) -> None:
    tokens = subject.split(".")
    pattern = ".".join("*" if at in wild else token for at, token in enumerate(tokens))
    shorter = ".".join([*pattern.split(".")[:-1], ">"])
    for one in (pattern, shorter):
        assert matches_pattern(subject, one)
        assert partition_of(subject, count) in partitions_of(one, count)
