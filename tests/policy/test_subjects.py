"""Subjects and patterns: valid names, and the names that a pattern matches."""

import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.bounds import subject_length_max_chars, subject_tokens_max
from waypost.policy.errors import InvalidInput, InvalidSubject
from waypost.policy.subjects import (
    is_literal,
    is_subject,
    matches_pattern,
    validate_pattern,
    validate_subject,
)

TOKENS = st.sampled_from(["a", "b", "A", "agent-1", "x_y"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=6).map(".".join)
PATTERNS = st.builds(
    lambda tokens, rest: ".".join(tokens + rest),
    st.lists(TOKENS | st.just("*"), min_size=1, max_size=5),
    st.sampled_from([[], [">"]]),
) | st.just(">")
ANY_TEXT = st.text(alphabet="aB0_-.*> \n\té", max_size=12)


def covers_by_regex(subject: str, pattern: str) -> bool:
    """Match with a regular expression, independently of the implementation."""
    translated = {"*": r"[^.]+", ">": r".+"}
    parts = [translated.get(token, re.escape(token)) for token in pattern.split(".")]
    return re.fullmatch(r"\.".join(parts), subject) is not None


def covers_by_recursion(tokens: list[str], wanted: list[str]) -> bool:
    if not tokens or not wanted:
        return tokens == wanted
    if wanted == [">"]:
        return True
    return wanted[0] in ("*", tokens[0]) and covers_by_recursion(tokens[1:], wanted[1:])


def is_pattern_by_regex(text: str) -> bool:
    token = r"(?:[A-Za-z0-9_-]+|\*)"
    return re.fullmatch(rf"(?:{token}\.)*(?:{token}|>)", text) is not None


# --- Which names are names -----------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["a", "agent.billing.refunds", "A-1._x.9", "-", "_"])
def test_a_literal_subject_is_returned_unchanged(subject: str) -> None:
    assert validate_subject(subject) == subject


@pytest.mark.parametrize("subject", ["", ".", "..", ".a", "a.", "a..b", "a...b"])
def test_empty_subjects_and_empty_tokens_are_rejected(subject: str) -> None:
    with pytest.raises(InvalidSubject, match="empty"):
        validate_subject(subject, allow_wildcards=True)


@pytest.mark.parametrize("subject", [" ", "a b", " a", "a ", "a\t", "a\n", "a.\u00a0b", "a\r.b"])
def test_whitespace_is_rejected_at_any_position(subject: str) -> None:
    with pytest.raises(InvalidSubject, match="letters, digits"):
        validate_subject(subject, allow_wildcards=True)


@pytest.mark.parametrize("subject", ["a/b", "a\\b", "é", "agent.٣", "a\0", "a:b", "../etc", "a$"])
def test_characters_that_mean_something_elsewhere_are_rejected(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        validate_subject(subject, allow_wildcards=True)


@pytest.mark.parametrize("subject", ["*", ">", "a.*", "a.>", "*.a", "a.*.b"])
def test_wildcards_are_rejected_where_a_subject_is_meant(subject: str) -> None:
    with pytest.raises(InvalidSubject, match="only allowed in patterns"):
        validate_subject(subject)


@pytest.mark.parametrize("pattern", ["*", ">", "a.*", "a.>", "*.a", "a.*.b", "*.*.>", "a.b"])
def test_wildcards_are_taken_where_a_pattern_is_meant(pattern: str) -> None:
    assert validate_pattern(pattern) == validate_subject(pattern, allow_wildcards=True) == pattern


@pytest.mark.parametrize("pattern", ["foo.>.bar", ">.a", ">.>", "a.>.*"])
def test_the_rest_wildcard_must_be_the_last_token(pattern: str) -> None:
    with pytest.raises(InvalidSubject, match="must be the last token"):
        validate_pattern(pattern)


@pytest.mark.parametrize("pattern", ["foo*", ">bar", "*foo", "foo>", "a.**", "a.>>", "a.*b.c"])
def test_a_wildcard_must_stand_alone_in_its_token(pattern: str) -> None:
    with pytest.raises(InvalidSubject, match="letters, digits"):
        validate_pattern(pattern)


@pytest.mark.parametrize("allow_wildcards", [False, True])
def test_sixteen_tokens_are_the_most(allow_wildcards: bool) -> None:
    widest = ".".join(["t"] * subject_tokens_max)
    assert validate_subject(widest, allow_wildcards) == widest
    with pytest.raises(InvalidSubject, match="more than 16 tokens"):
        validate_subject(f"{widest}.t", allow_wildcards)


def test_wildcards_count_as_tokens() -> None:
    with pytest.raises(InvalidSubject, match="more than 16 tokens"):
        validate_pattern("*." * subject_tokens_max + ">")


def test_a_subject_may_be_as_long_as_the_bound_and_no_longer() -> None:
    longest = "x" * subject_length_max_chars
    assert validate_subject(longest) == longest
    with pytest.raises(InvalidSubject, match="longer than"):
        validate_subject(f"{longest}x")


@pytest.mark.parametrize("subject", [None, 7, b"agent.a", ["agent", "a"]])
def test_only_strings_are_subjects(subject: Any) -> None:
    with pytest.raises(InvalidSubject, match="expected a string"):
        validate_subject(subject)


def test_an_endless_subject_makes_a_short_message() -> None:
    with pytest.raises(InvalidSubject) as rejected:
        validate_subject("x" * 1_000_000)
    assert len(str(rejected.value)) < 200


def test_an_invalid_subject_is_invalid_input_and_a_value_error() -> None:
    with pytest.raises(InvalidInput) as rejected:
        validate_subject("")
    assert isinstance(rejected.value, ValueError)


@given(ANY_TEXT)
def test_a_text_is_a_pattern_exactly_when_it_follows_the_grammar(text: str) -> None:
    try:
        validate_pattern(text)
    except InvalidSubject:
        accepted = False
    else:
        accepted = True
    assert accepted == is_pattern_by_regex(text)


@given(PATTERNS)
def test_a_pattern_is_a_subject_exactly_when_it_is_literal(pattern: str) -> None:
    if is_literal(pattern):
        assert validate_subject(pattern) == pattern
    else:
        with pytest.raises(InvalidSubject):
            validate_subject(pattern)


# --- Which names a pattern covers ----------------------------------------------------------------


def test_a_literal_pattern_covers_itself_and_nothing_else() -> None:
    assert matches_pattern("agent.a", "agent.a")
    assert not matches_pattern("agent.b", "agent.a")
    assert not matches_pattern("agent.a.b", "agent.a")
    assert not matches_pattern("agent", "agent.a")


def test_a_star_covers_exactly_one_token() -> None:
    assert matches_pattern("foo.bar", "foo.*")
    assert not matches_pattern("foo.bar.baz", "foo.*")
    assert not matches_pattern("foo", "foo.*")


def test_a_star_may_stand_anywhere() -> None:
    assert matches_pattern("a.b.c", "*.b.c")
    assert matches_pattern("a.b.c", "a.*.c")
    assert not matches_pattern("a.b.d", "a.*.c")


def test_the_rest_wildcard_covers_one_or_more_tokens() -> None:
    assert matches_pattern("foo.bar", "foo.>")
    assert matches_pattern("foo.bar.baz", "foo.>")


def test_the_rest_wildcard_does_not_cover_none() -> None:
    assert not matches_pattern("foo", "foo.>")


def test_the_rest_wildcard_alone_covers_everything() -> None:
    assert matches_pattern("a", ">")
    assert matches_pattern("a.b.c", ">")


def test_case_matters() -> None:
    assert not matches_pattern("Agent.a", "agent.a")
    assert not matches_pattern("agent.A", "agent.a")


def test_characters_are_not_regular_expressions() -> None:
    assert not matches_pattern("agentxa", "agent.a")


@given(SUBJECTS, PATTERNS)
def test_matching_agrees_with_a_regular_expression(subject: str, pattern: str) -> None:
    assert matches_pattern(subject, pattern) == covers_by_regex(subject, pattern)


@given(SUBJECTS, PATTERNS)
def test_matching_agrees_with_the_recursive_definition(subject: str, pattern: str) -> None:
    expected = covers_by_recursion(subject.split("."), pattern.split("."))
    assert matches_pattern(subject, pattern) == expected


@given(SUBJECTS, st.data())
def test_a_pattern_made_from_a_subject_covers_it(subject: str, data: st.DataObject) -> None:
    tokens = subject.split(".")
    stars = data.draw(st.sets(st.integers(0, len(tokens) - 1)))
    cut = data.draw(st.integers(0, len(tokens) - 1))
    blurred = ["*" if position in stars else token for position, token in enumerate(tokens)]
    assert matches_pattern(subject, ".".join(blurred))
    assert matches_pattern(subject, ".".join([*blurred[:cut], ">"]))


def test_a_text_that_is_too_long_for_a_subject_is_not_remembered() -> None:
    text = "x" * 1000
    before = sys.getrefcount(text)
    assert not is_subject(text)
    assert sys.getrefcount(text) == before
