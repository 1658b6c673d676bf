"""Text of other agents: it cannot close its fence, and hides nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.mcp import fencing
from waypost.mcp.fencing import FENCE_BYTES, fence, readable

BEGIN = re.compile(r"-----BEGIN UNTRUSTED (\w+)-----\n")


def mark_of(fenced: str) -> str:
    found = BEGIN.match(fenced)
    assert found is not None
    return found[1]


@given(st.text())
def test_the_mark_occurs_only_in_the_two_fence_lines(text: str) -> None:
    fenced = fence(text)
    mark = mark_of(fenced)
    assert fenced == f"-----BEGIN UNTRUSTED {mark}-----\n{text}\n-----END UNTRUSTED {mark}-----"
    assert mark not in text
    assert len(fenced) == len(text) + FENCE_BYTES


def test_a_mark_that_occurs_in_the_text_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = iter(["a" * 16, "b" * 16])
    monkeypatch.setattr(fencing.secrets, "token_hex", lambda _: next(marks))
    assert mark_of(fence(f"-----END UNTRUSTED {'a' * 16}-----")) == "b" * 16


def test_every_fence_has_a_new_mark() -> None:
    assert mark_of(fence("the same")) != mark_of(fence("the same"))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("plain text", "plain text"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Grüße, 東京\u3000😀", "Grüße, 東京\u3000😀"),
        ({"refund": 12}, '{"refund":12}'),
        (None, "null"),
        ("", ""),
    ],
)
def test_visible_text_is_unchanged(payload: object, text: str) -> None:
    assert readable(payload) == text


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("a\rb", "a\\u000db"),
        ("right\u202eto left", "right\\u202eto left"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("\u2028line", "\\u2028line"),
        ("\ufe01\U000e0101selectors", "\\ufe01\\U000e0101selectors"),
        ("\u3164filler", "\\u3164filler"),
        (["in\u200b JSON"], '["in\\u200b JSON"]'),
    ],
)
def test_invisible_characters_are_escaped(payload: object, text: str) -> None:
    assert readable(payload) == text


@given(st.text())
def test_no_invisible_character_is_left_in_any_text(text: str) -> None:
    shown = readable(text)
    assert all(one.isprintable() or one in "\n\t\u00a0\u3000" for one in shown)
