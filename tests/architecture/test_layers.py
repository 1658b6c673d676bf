"""The arrows between the layers, as pyproject.toml states them, and what the lowest may import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "waypost"
ALLOWED_BELOW_RELAY = {
    "policy": {"msgspec", "waypost.policy"},
    "wire": {"msgspec", "waypost.policy", "waypost.wire"},
}


@pytest.mark.process
def test_the_import_contracts_are_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [linter, "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


@pytest.mark.parametrize("package", ["policy", "wire"])
def test_policy_and_wire_import_the_standard_library_and_msgspec_only(package: str) -> None:
    modules = sorted((SOURCE / package).rglob("*.py"))
    assert modules, f"no modules under {SOURCE / package}: this test checks nothing"
    strangers = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules
        for line, name in imports_of(path)
        if not is_allowed(name, ALLOWED_BELOW_RELAY[package])
    ]
    if strangers:
        pytest.fail("\n  ".join(["not allowed below the relay:", *strangers]), pytrace=False)


def imports_of(path: Path) -> list[tuple[int, str]]:
    """Line and absolute name of every import, those inside functions and type blocks too."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names]
            case ast.ImportFrom(module="waypost", names=names, level=0):
                found += [(node.lineno, f"waypost.{alias.name}") for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append((node.lineno, module))
            case ast.ImportFrom(module=module, level=level):
                found.append((node.lineno, absolute_name(path, module, level)))
    return found


def absolute_name(path: Path, module: str | None, level: int) -> str:
    package = path.relative_to(SOURCE.parent).parts[:-1]
    start = package[: len(package) - level + 1]
    return ".".join([*start, *([module] if module else [])])


def is_allowed(name: str, allowed: set[str]) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)
