"""Generated pages are up to date with the code."""

import pytest

from docs.generate import MEANINGS, PAGES, REFERENCE
from tests.e2e.test_readme import leaves
from waypost import Settings
from waypost.policy.settings import to_config_document


@pytest.mark.parametrize("name", list(PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    shown = (REFERENCE / name).read_text(encoding="utf-8")
    if shown != PAGES[name]():
        pytest.fail(
            f"docs/reference/{name} is not up to date. Generate it again with:\n"
            "  .venv/bin/python -m docs.generate",
            pytrace=False,
        )


def test_meanings_and_settings_match() -> None:
    document = to_config_document(Settings())
    flat = {**document, **document.pop("reliability")}
    flat.pop("reliability")
    assert set(MEANINGS) == {key for key, _ in leaves(flat)}
