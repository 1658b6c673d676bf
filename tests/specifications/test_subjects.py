"""Subjects and patterns: what is valid, and what matches."""

import pytest

from waypost import InvalidSubject, matches_pattern, validate_subject


@pytest.mark.parametrize("subject", ["a", "agent.a", "A-1.b_2", "0"])
def test_plain_tokens_are_a_subject(subject: str) -> None:
    assert validate_subject(subject) == subject


@pytest.mark.parametrize(
    "subject",
    ["", ".", "a.", ".a", "a..b", "a b", " a", "a\n", "a\t.b", "ü", "a/b", "../a", "a'b", "a;b"],
)
@pytest.mark.parametrize("allow_wildcards", [False, True])
def test_anything_else_is_rejected(subject: str, allow_wildcards: bool) -> None:
    with pytest.raises(InvalidSubject):
        validate_subject(subject, allow_wildcards)


@pytest.mark.parametrize("character", list('"\\\0~%:$|!?#&()[]{}<=+,@^`'))
def test_characters_that_mean_something_elsewhere_are_rejected(character: str) -> None:
    with pytest.raises(InvalidSubject):
        validate_subject(f"a{character}b", allow_wildcards=True)


@pytest.mark.parametrize("pattern", ["*", ">", "a.*", "a.>", "*.a", "a.*.b", "*.>"])
def test_wildcards_are_valid_only_where_a_pattern_is_meant(pattern: str) -> None:
    assert validate_subject(pattern, allow_wildcards=True) == pattern
    with pytest.raises(InvalidSubject):
        validate_subject(pattern)


@pytest.mark.parametrize("pattern", [">.a", "a.>.b", "a*", "*a", "a.>b", "a>", "**", ">>"])
def test_the_rest_wildcard_is_last_and_wildcards_stand_alone(pattern: str) -> None:
    with pytest.raises(InvalidSubject):
        validate_subject(pattern, allow_wildcards=True)


@pytest.mark.parametrize(
    ("subject", "pattern", "matches"),
    [
        ("foo.bar", "foo.bar", True),
        ("foo.bar", "foo.Bar", False),
        ("foo.bar", "foo", False),
        ("foo.bar", "foo.*", True),
        ("foo", "foo.*", False),
        ("foo.bar.baz", "foo.*", False),
        ("foo.bar.baz", "*.bar.*", True),
        ("foo.bar", "foo.>", True),
        ("foo.bar.baz", "foo.>", True),
        ("foo", "foo.>", False),
        ("foo", ">", True),
    ],
)
def test_a_star_is_one_token_and_the_rest_wildcard_one_or_more(
    subject: str, pattern: str, matches: bool
) -> None:
    assert matches_pattern(subject, pattern) == matches
