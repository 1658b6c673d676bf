"""Subjects and patterns: NATS-style names of 1 to 16 dot-separated tokens.

Rule 1  A subject is literal. A pattern may have `*` (one token) and, last, `>` (one or more).
Rule 2  A wildcard is a whole token: `foo*` is neither a subject nor a pattern.
Rule 3  Subjects are case-sensitive. Nothing is trimmed, folded or repaired.

This module does not know which subjects are registered; `subject_index` finds them.
`matches_pattern` is the readable reference that the index must agree with.
"""

import re
from functools import lru_cache
from typing import NewType

from waypost.policy.bounds import subject_length_max_chars, subject_tokens_max
from waypost.policy.errors import InvalidSubject

Subject = NewType("Subject", str)
Pattern = NewType("Pattern", str)

ONE = "*"
REST = ">"

_TOKEN = r"[A-Za-z0-9_-]+"
_literal = re.compile(rf"{_TOKEN}(?:\.{_TOKEN}){{0,{subject_tokens_max - 1}}}").fullmatch
_token = re.compile(_TOKEN).fullmatch


def validate_subject(subject: str, allow_wildcards: bool = False) -> Subject:
    """Return `subject` unchanged, or raise `InvalidSubject` with the rule it breaks.

    With `allow_wildcards`, patterns are valid too.
    """
    if is_subject(subject):
        return Subject(subject)
    problem = _problem(subject, allow_wildcards)
    if problem:
        raise InvalidSubject(f"invalid subject {subject!r:.80}: {problem}")
    return Subject(subject)


def is_subject(text: object) -> bool:
    """Return whether `text` is a literal subject."""
    # The length comes first: the cache must not keep long texts of strangers.
    return isinstance(text, str) and len(text) <= subject_length_max_chars and _is_subject(text)


@lru_cache(maxsize=16_384)
def _is_subject(text: str) -> bool:
    """Check a subject; cached, because the same few names occur again and again."""
    return _literal(text) is not None


def validate_pattern(pattern: str) -> Pattern:
    """Return `pattern` unchanged, or raise `InvalidSubject`."""
    return Pattern(validate_subject(pattern, allow_wildcards=True))


def is_literal(subject: str) -> bool:
    """Return whether a validated `subject` has no wildcards."""
    return ONE not in subject and REST not in subject


def matches_pattern(subject: str, pattern: str) -> bool:
    """Return whether the literal `subject` matches `pattern`."""
    tokens = subject.split(".")
    wanted = pattern.split(".")
    for position, token in enumerate(wanted):
        if position >= len(tokens):
            return False
        if token == REST:
            return True
        if token not in (ONE, tokens[position]):
            return False
    return len(tokens) == len(wanted)


def _problem(subject: object, allow_wildcards: bool) -> str | None:
    if not isinstance(subject, str):
        return f"expected a string, got {type(subject).__name__}"
    if not subject:
        return "it is empty"
    if len(subject) > subject_length_max_chars:
        return f"longer than {subject_length_max_chars} characters"
    tokens = subject.split(".")
    if len(tokens) > subject_tokens_max:
        return f"more than {subject_tokens_max} tokens"
    for position, token in enumerate(tokens):
        if not token:
            return "it has an empty token (a dot too many)"
        if token in (ONE, REST):
            if not allow_wildcards:
                return f"the wildcard {token!r} is only allowed in patterns"
            if token == REST and position != len(tokens) - 1:
                return "'>' must be the last token"
        elif not _token(token):
            return f"token {token!r:.40} may only hold letters, digits, '_' and '-'"
    return None
