"""The Python files of this project, parsed once, for the tests of its architecture."""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "waypost"
FOLDERS = ("src", "tests", "bench", "examples")


def python_files(*folders: str) -> list[Path]:
    """Return every Python file under the named folders of the project."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a path relative to the project, with slashes."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def identifiers_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every name in a file, keywords included."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def module_name(path: Path) -> str:
    """Return the dotted name of a file under src."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    return {module_name(path): path for path in python_files("src")}


@cache
def importers() -> dict[str, set[str]]:
    """Return, for every module of the package, the modules that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        for node in ast.walk(tree_of(path)):
            for imported in _imported_modules(node):
                if imported != name:
                    found[imported].add(name)
    return found


def _imported_modules(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name in modules())
        case ast.ImportFrom(module=str(module), names=names):
            submodules = [f"{module}.{alias.name}" for alias in names]
            found = [name for name in submodules if name in modules()]
            yield from found
            if module in modules() and len(found) < len(names):
                yield module


def report(problems: list[str]) -> None:
    """Fail with a list of places, if there are any."""
    if problems:
        pytest.fail("\n  ".join([f"{len(problems)} to fix:", *problems]), pytrace=False)
