"""Who sees whom in the directory, and names one mistake away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.bounds import all_name_changes_per_minute_max, name_changes_per_minute_max
from waypost.policy.directory import (
    SIMILAR_MAX_CHARS,
    DirectoryMode,
    default_mode,
    may_see,
    reveals_names,
    similar_names,
)
from waypost.policy.own_changes import OwnChanges


def mistakes(typed: str, meant: str) -> int:
    """Return the distance of two texts, with a swap of neighbours as one mistake."""
    rows = [[*range(len(meant) + 1)]]
    for i, one in enumerate(typed, start=1):
        row = [i]
        for j, other in enumerate(meant, start=1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (one != other))
            if i > 1 and j > 1 and typed[i - 2 : i] == meant[j - 2 : j][::-1]:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


NAMES = st.text("abz-.7", min_size=1, max_size=8)


@given(NAMES, NAMES)
def test_every_name_one_mistake_away_is_tried(typed: str, meant: str) -> None:
    tried = set(similar_names(typed))
    if mistakes(typed, meant) == 1:
        assert meant in tried
    elif meant != typed:
        assert meant not in tried


def test_a_missing_prefix_and_capitals_are_mistakes_too() -> None:
    assert "agent.coder" in set(similar_names("coder"))
    assert "agent.coder" in set(similar_names("Agent.Coder"))


def test_the_cost_is_bounded_by_the_length_of_the_name() -> None:
    assert len(list(similar_names("x" * SIMILAR_MAX_CHARS))) < 100 * SIMILAR_MAX_CHARS
    assert list(similar_names("x" * (SIMILAR_MAX_CHARS + 1))) == []


@pytest.mark.parametrize(
    ("mode", "has_exchanged", "sees"),
    [
        ("open", False, True),
        ("contacts", False, False),
        ("contacts", True, True),
        ("closed", True, False),
    ],
)
def test_the_mode_decides_who_sees_whom(
    mode: DirectoryMode, has_exchanged: bool, sees: bool
) -> None:
    assert may_see(mode, has_exchanged=has_exchanged) is sees


def test_only_an_open_directory_reveals_names() -> None:
    assert (default_mode(is_local=True), default_mode(is_local=False)) == ("open", "contacts")
    for mode in ("contacts", "closed"):
        assert not reveals_names(mode, is_anonymous=False, anyone_may_bind=True)
    assert reveals_names("open", is_anonymous=False, anyone_may_bind=False)
    assert reveals_names("open", is_anonymous=True, anyone_may_bind=True)
    assert not reveals_names("open", is_anonymous=True, anyone_may_bind=False)


def test_changes_are_limited_for_one_name_and_for_all() -> None:
    changes = OwnChanges("a name", name_changes_per_minute_max, all_name_changes_per_minute_max)
    for _ in range(name_changes_per_minute_max):
        assert changes.admit("agent.a", 1000).allowed
    rejected = changes.admit("agent.a", 1000)
    assert (rejected.allowed, rejected.retry_after_ms) == (False, 60_000)
    assert changes.admit("agent.a", 61_000).allowed
    others = all_name_changes_per_minute_max - 1
    assert all(changes.admit(f"agent.{n}", 61_000).allowed for n in range(others))
    assert not changes.admit("agent.b", 61_000).allowed
