"""Generated pages are up to date with the code."""

import re

import pytest

from docs.generate import MEANINGS, PAGES, REFERENCE
from tests.e2e.test_readme import ROOT, leaves
from waypost import Settings
from waypost.policy.settings import to_config_document

RELAY = ROOT / "src" / "waypost" / "relay"
CHECKS = [
    *(RELAY / "verify").glob("*.py"),
    RELAY / "journal" / "chain.py",
    RELAY / "maildir" / "reconcile.py",
]


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


def test_findings_on_the_page_are_texts_of_the_checks() -> None:
    page = (REFERENCE / "verify-findings.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    texts = [text for row in found for text in re.findall(r"`([^`]+)`", row)]
    assert len(texts) > 12
    source = "".join(path.read_text(encoding="utf-8") for path in CHECKS)
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    words = [part.strip(" ,;") for text in texts for part in text.split("…")]
    assert [part for part in words if part not in source] == []
