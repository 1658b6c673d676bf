"""Habits that keep the source readable: sizes, names, and a pure policy.

Each test fails with the list of places that broke the habit.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import ROOT, lines_of, name_of, python_files, report, tree_of

FUNCTION_LINES_MAX = 50
LINE_CHARACTERS_MAX = 100
MODULE_LINES_MAX = {"src": 400, "tests": 400, "bench": 400, "examples": 400}

VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc", "core", "base", "manager"}
VAGUE_BUT_MEANT = {"bench/core.py"}  # it measures the core of the relay

# Written apart, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")

PURE_PACKAGES = ("src/waypost/policy/", "src/waypost/wire/")
MAY_READ_ENVIRONMENT = ("src/waypost/server/", "src/waypost/cli/", "src/waypost/__main__.py")
IMPURE_MODULES = {"asyncio", "io", "logging", "os", "pathlib", "random", "socket", "time"}
IMPURE_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print", "__import__"}
CLOCK_METHODS = {"now", "utcnow", "today"}
CLOCK_TYPES = {"date", "datetime"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}


def everything() -> list[Path]:
    return python_files(*MODULE_LINES_MAX)


def test_there_is_source_to_look_at() -> None:
    assert python_files("src"), f"no Python files under {ROOT / 'src'}: these tests check nothing"


def test_functions_fit_on_a_screen() -> None:
    report(
        [
            f"{name_of(path)}:{node.lineno} {node.name} has {length} lines, "
            f"at most {FUNCTION_LINES_MAX}"
            for path in everything()
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
        ]
    )


def test_modules_stay_small() -> None:
    report(
        [
            f"{name_of(path)} has {length} lines, at most {lines_max} under {folder}/"
            for folder, lines_max in MODULE_LINES_MAX.items()
            for path in python_files(folder)
            if (length := len(lines_of(path))) > lines_max
        ]
    )


def test_lines_stay_short() -> None:
    report(
        [
            f"{name_of(path)}:{number} has {len(line)} characters, at most {LINE_CHARACTERS_MAX}"
            for path in everything()
            for number, line in enumerate(lines_of(path), start=1)
            if len(line) > LINE_CHARACTERS_MAX
        ]
    )


def test_names_of_modules_say_what_is_inside() -> None:
    report(
        [
            f"{name_of(path)}: '{part}' could hold anything; name it after what it does"
            for path in everything()
            if name_of(path) not in VAGUE_BUT_MEANT
            for part in path.relative_to(ROOT).with_suffix("").parts
            if part.strip("_") in VAGUE_NAMES
        ]
    )


def test_every_source_module_says_what_it_is_for() -> None:
    report(
        [
            f"{name_of(path)} has no docstring"
            for path in python_files("src")
            if not ast.get_docstring(tree_of(path))
        ]
    )


def test_nothing_is_left_for_later() -> None:
    report(
        [
            f"{name_of(path)}:{number} {found.group()}: finish it or leave it out"
            for path in everything()
            for number, line in enumerate(lines_of(path), start=1)
            if (found := UNFINISHED.search(line))
        ]
    )


def test_no_test_asserts_a_constant() -> None:
    report(
        [
            f"{name_of(path)}:{node.lineno} asserts a constant, which checks nothing"
            for path in everything()
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Assert)
            and isinstance(node.test, ast.Constant)
            and node.test.value
        ]
    )


def test_policy_and_wire_use_neither_clock_nor_outside_world() -> None:
    report(
        [
            f"{name_of(path)}:{line} {what}; take the value as an argument"
            for path in python_files("src")
            if name_of(path).startswith(PURE_PACKAGES)
            for line, what in impurities(tree_of(path))
        ]
    )


def test_only_server_and_command_line_read_the_environment() -> None:
    report(
        [
            f"{name_of(path)}:{node.lineno} reads the environment; take the value as an argument"
            for path in python_files("src")
            if not name_of(path).startswith(MAY_READ_ENVIRONMENT)
            for node in ast.walk(tree_of(path))
            if reads_environment(node)
        ]
    )


def test_the_oldest_entry_is_taken_from_an_ordered_dict() -> None:
    """In a plain dict the first key is found by passing all deleted ones: it takes ever longer."""
    report(
        [
            f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}; use OrderedDict.popitem"
            for path in python_files("src")
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Delete) and "next(iter(" in ast.unparse(node)
        ]
    )


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and description of each impure import or call in a module.

    import-linter checks imports too; this also finds calls that need no import.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] in IMPURE_MODULES:
                        yield node.lineno, f"imports {alias.name}"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in IMPURE_MODULES:
                yield node.lineno, f"imports from {module}"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield node.lineno, f"calls {called}()"
            case ast.Attribute(value=owner, attr=method) if method in CLOCK_METHODS:
                if ast.unparse(owner).rpartition(".")[2] in CLOCK_TYPES:
                    yield node.lineno, f"asks the clock with {ast.unparse(node)}"


def reads_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr=name):
            return name in ENVIRONMENT
        case ast.ImportFrom(module="os", names=names):
            return any(alias.name in ENVIRONMENT for alias in names)
    return False
