"""Pages that are made from the code are what the code would make of them now."""

import pytest

from docs.generate import MEANINGS, PAGES, REFERENCE
from tests.e2e.test_readme import leaves
from waypost import Settings
from waypost.policy.settings import to_config_document


@pytest.mark.parametrize("name", list(PAGES))
def test_a_page_is_what_the_code_says_now(name: str) -> None:
    shown = (REFERENCE / name).read_text(encoding="utf-8")
    if shown != PAGES[name]():
        pytest.fail(
            f"docs/reference/{name} is not what the code says. Renew it with:\n"
            "  .venv/bin/python -m docs.generate",
            pytrace=False,
        )


def test_no_meaning_is_of_a_setting_that_is_gone() -> None:
    document = to_config_document(Settings())
    flat = {**document, **document.pop("reliability")}
    flat.pop("reliability")
    assert set(MEANINGS) == {key for key, _ in leaves(flat)}
