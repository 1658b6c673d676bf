"""Text for terminals: nothing in it acts, and JSON keeps its value."""

import json

from hypothesis import given
from hypothesis import strategies as st

from waypost.wire.printable import printable, printable_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_every_text_becomes_printable_on_one_line(text: str) -> None:
    assert printable(text).isprintable()


@given(TEXT)
def test_printable_text_is_unchanged(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown


@given(st.recursive(TEXT | st.integers() | st.booleans(), st.lists))
def test_a_json_document_keeps_its_value_and_becomes_printable(document: object) -> None:
    shown = printable_json(json.dumps(document, ensure_ascii=False))
    assert json.loads(shown) == document
    assert shown.isprintable()
