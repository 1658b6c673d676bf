"""Links, pages and tests that documents name exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
NOT_OURS = {".git", ".venv", "node_modules"}

FENCED_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)")
REFERENCE_LINK = re.compile(r"^\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
NAMED_TEST = re.compile(r"\btests/[\w./-]+\.py(?:::\w+)*")


def documents() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not any(
            part in NOT_OURS or part.startswith(".") for part in path.relative_to(ROOT).parts[:-1]
        )
    )


def test_every_link_between_documents_resolves() -> None:
    broken = [
        f"{document.relative_to(ROOT)} links to {target}"
        for document in documents()
        for target in links_in(document)
        if not leads_somewhere(document, target)
    ]
    if broken:
        pytest.fail("\n  ".join(["broken links:", *broken]), pytrace=False)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    found = [ROOT / "README.md"]
    while found:
        page = found.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in links_in(page))
        found += [(page.parent / target).resolve() for target in targets if target]
    lost = sorted(set((ROOT / "docs").rglob("*.md")) - reached)
    if lost:
        names = [str(page.relative_to(ROOT)) for page in lost]
        pytest.fail("\n  ".join(["unreachable pages:", *names]), pytrace=False)


def test_every_guarantee_names_tests_that_exist() -> None:
    assert GUARANTEES.is_file(), "docs/guarantees.md is missing"
    named = NAMED_TEST.findall(GUARANTEES.read_text(encoding="utf-8"))
    assert named, "docs/guarantees.md names no test"
    missing = [name for name in sorted(set(named)) if not names_a_test(name)]
    if missing:
        pytest.fail("\n  ".join(["tests that do not exist:", *missing]), pytrace=False)


def prose_of(document: Path) -> str:
    """Return the text without code blocks, where brackets and hashes have other meanings."""
    return FENCED_BLOCK.sub("", document.read_text(encoding="utf-8"))


def links_in(document: Path) -> list[str]:
    prose = prose_of(document)
    targets = INLINE_LINK.findall(prose) + REFERENCE_LINK.findall(prose)
    return [target for target in targets if not ELSEWHERE.match(target)]


def leads_somewhere(document: Path, target: str) -> bool:
    path, _, fragment = target.partition("#")
    destination = document if not path else (document.parent / path).resolve()
    if not destination.exists() or not destination.is_relative_to(ROOT):
        return False
    return not fragment or destination.suffix != ".md" or fragment in anchors_of(destination)


def anchors_of(document: Path) -> set[str]:
    """Return GitHub's anchors of the headings: lower case, hyphens for blanks, no punctuation."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose_of(document))
    }


def names_a_test(name: str) -> bool:
    file, *symbols = name.split("::")
    path = ROOT / file
    if not path.is_file():
        return False
    scope: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for symbol in symbols:
        for node in scope:
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == symbol
            ):
                scope = node.body
                break
        else:
            return False
    return True
