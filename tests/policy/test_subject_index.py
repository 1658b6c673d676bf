"""The trie must agree with the naive matcher, whatever was added and removed before."""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import is_literal, matches_pattern

TOKENS = st.sampled_from(["a", "b", "c"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda tokens, rest: ".".join(tokens + rest),
    st.lists(TOKENS | st.just("*"), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")


def index_of(names: Sequence[str]) -> SubjectIndex[int]:
    """Return an index with the position of every name."""
    index: SubjectIndex[int] = SubjectIndex()
    for position, name in enumerate(names):
        index.add(name, position)
    return index


def test_an_empty_index_finds_nothing() -> None:
    index = index_of([])
    assert index.matching("a.b") == index.within(">") == []
    assert len(index) == 0


def test_one_subject_may_hold_many_values_in_the_order_of_adding() -> None:
    index = index_of(["a.b", "a.b", "a.b"])
    assert index.matching("a.b") == [0, 1, 2]


def test_results_come_in_the_order_of_adding_whatever_the_wildcard() -> None:
    index = index_of([">", "a.b", "a.*", "*.b", "a.>", "a.b"])
    assert index.matching("a.b") == [0, 1, 2, 3, 4, 5]


def test_a_value_stored_under_rest_is_not_found_for_the_bare_prefix() -> None:
    assert index_of(["a.>"]).matching("a") == []


def test_a_bounded_search_ends_at_the_first_value_too_many() -> None:
    index = index_of([f"a.{number}" for number in range(1000)])
    seen: list[int] = []

    def accept(value: int) -> bool:
        seen.append(value)
        return True

    assert index.within_bounds("a.*", accept, 10, 10_000) is None
    assert len(seen) == 11
    assert index.within_bounds("a.7", accept, 10, 10_000) == [7]


def test_a_bounded_search_ends_at_the_visits_it_may_make() -> None:
    index = index_of([f"a.{number}.b" for number in range(100)])
    assert index.within_bounds("a.*.c", lambda value: True, 10, 50) is None
    assert index.within_bounds("a.*.c", lambda value: True, 10, 100) == []


@given(st.lists(SUBJECTS, unique=True, max_size=20), PATTERNS)
def test_a_search_within_its_bounds_finds_the_same(names: list[str], pattern: str) -> None:
    index = index_of(names)
    expected = [value for value in index.within(pattern) if value % 3]
    found = index.within_bounds(pattern, lambda value: value % 3 > 0, 20, 1000)
    assert found == expected


def test_subjects_within_a_pattern_are_in_the_order_of_addition() -> None:
    index = index_of(["a.c", "a.b.c", "b", "a.a"])
    assert index.within("a.>") == [0, 1, 3]
    assert index.within(">") == [0, 1, 2, 3]
    assert index.within("a.*") == [0, 3]


def test_a_literal_pattern_has_only_itself_within() -> None:
    assert index_of(["a", "a.b", "a.b.c"]).within("a.b") == [1]


def test_removing_takes_out_one_value_and_leaves_its_neighbours() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    first = index.add("a.b", "first")
    index.add("a.b", "second")
    assert index.remove("a.b", first)
    assert index.matching("a.b") == ["second"]


def test_removing_a_longer_name_leaves_the_shorter_one() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    index.add("a.b", "short")
    long = index.add("a.b.c", "long")
    assert index.remove("a.b.c", long)
    assert index.within(">") == ["short"]


def test_removing_a_shorter_name_leaves_the_longer_one() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    short = index.add("a.b", "short")
    index.add("a.b.c", "long")
    assert index.remove("a.b", short)
    assert index.within(">") == ["long"]


def test_removing_twice_returns_false_the_second_time() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    ticket = index.add("a", "value")
    assert index.remove("a", ticket)
    assert not index.remove("a", ticket)
    assert len(index) == 0


def test_removing_under_another_name_changes_nothing() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    ticket = index.add("a.b", "value")
    assert not index.remove("a", ticket)
    assert not index.remove("a.c", ticket)
    assert not index.remove("a.b.c", ticket)
    assert index.matching("a.b") == ["value"]


def test_a_value_of_none_is_a_value_like_any_other() -> None:
    index: SubjectIndex[None] = SubjectIndex()
    ticket = index.add("a", None)
    assert index.matching("a") == [None]
    assert index.remove("a", ticket)
    assert len(index) == 0


def test_nothing_stays_behind_when_everything_has_left() -> None:
    names = ["a", "a.b.c.d", "a.*.c", ">", "b.>", "a.b"]
    index: SubjectIndex[str] = SubjectIndex()
    tickets = [(name, index.add(name, name)) for name in names]
    for name, ticket in tickets:
        index.remove(name, ticket)
    assert not index._root.below


@given(st.lists(PATTERNS, max_size=12), SUBJECTS)
def test_matching_finds_what_the_naive_matcher_finds(names: list[str], subject: str) -> None:
    expected = [at for at, name in enumerate(names) if matches_pattern(subject, name)]
    assert index_of(names).matching(subject) == expected


@given(st.lists(SUBJECTS, max_size=12), PATTERNS)
def test_within_finds_what_the_naive_matcher_finds(names: list[str], pattern: str) -> None:
    expected = [at for at, name in enumerate(names) if matches_pattern(name, pattern)]
    assert index_of(names).within(pattern) == expected


class IndexAgainstList(RuleBasedStateMachine):
    """A trie and a plain list agree after the same additions and removals."""

    stored = Bundle("stored")

    def __init__(self) -> None:
        super().__init__()
        self.index: SubjectIndex[int] = SubjectIndex()
        self.listed: list[tuple[str, int]] = []

    @rule(target=stored, name=SUBJECTS | PATTERNS)
    def add(self, name: str) -> tuple[str, int]:
        ticket = self.index.add(name, len(self.listed))
        self.listed.append((name, ticket))
        return name, ticket

    @rule(target=stored, name=SUBJECTS, times=st.integers(2, 4))
    def add_siblings(self, name: str, times: int) -> MultipleResults[tuple[str, int]]:
        return multiple(*[self.add(f"{name}.{extra}") for extra in range(times)])

    @rule(entry=consumes(stored))
    def remove(self, entry: tuple[str, int]) -> None:
        name, ticket = entry
        assert self.index.remove(name, ticket)
        position = self.listed.index(entry)
        self.listed[position] = ("", ticket)

    @rule(entry=consumes(stored), other=SUBJECTS)
    def remove_twice_or_elsewhere(self, entry: tuple[str, int], other: str) -> None:
        self.remove(entry)
        assert not self.index.remove(*entry)
        assert not self.index.remove(other, entry[1])

    @rule(subject=SUBJECTS)
    def matching(self, subject: str) -> None:
        expected = [at for at, (name, _) in self.present() if matches_pattern(subject, name)]
        assert self.index.matching(subject) == expected

    @rule(pattern=PATTERNS)
    def within(self, pattern: str) -> None:
        # An index of patterns is never asked this, so only literal names count.
        found = [at for at in self.index.within(pattern) if is_literal(self.listed[at][0])]
        literal = ((at, name) for at, (name, _) in self.present() if is_literal(name))
        assert found == [at for at, name in literal if matches_pattern(name, pattern)]

    @invariant()
    def length(self) -> None:
        assert len(self.index) == sum(1 for _ in self.present())

    def present(self) -> Iterator[tuple[int, tuple[str, int]]]:
        return ((at, entry) for at, entry in enumerate(self.listed) if entry[0])


TestIndexAgainstList = IndexAgainstList.TestCase
