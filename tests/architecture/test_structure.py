"""The shape of the source tree: directions between folders, one definition each, no thin modules.

Each test fails with the list of places that broke it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.source_tree import (
    FOLDERS,
    ROOT,
    importers,
    lines_of,
    modules,
    name_of,
    python_files,
    report,
    tree_of,
)

CALLBACKS_ASSIGNED_MAX = 3
DOUBLED_CLASS_NAMES_MAX = 11
THIN_MODULES_MAX = 10
THIN_MODULE_LINES = 60
README_WORDS_MAX = 800
LAYERS_WITH_FOLDERS = ("relay", "server", "client", "pipeline", "cli", "mcp")
STAGES = ["screen", "rate_stage", "tier_stage", "inbox_stage"]


def test_folders_inside_a_layer_import_each_other_in_one_direction() -> None:
    report([" → ".join(cycle) for layer in LAYERS_WITH_FOLDERS for cycle in cycles_in(layer)])


def test_every_layer_with_folders_has_an_import_contract() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    containers = [line for line in project.splitlines() if line.startswith("containers")]
    report(
        [
            f"no import-linter contract draws the layers inside waypost.{layer}"
            for layer in ("relay", "server", "client", "pipeline")
            if not any(f'"waypost.{layer}"' in line for line in containers)
        ]
    )


def test_the_runtime_of_a_relay_is_used_inside_the_relay_only() -> None:
    report(
        [
            f"{name_of(path)}:{node.lineno} reads {ast.unparse(node)}"
            for path in python_files("src")
            if not name_of(path).startswith("src/waypost/relay/")
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Attribute)
            and (node.attr == "_runtime" or ast.unparse(node).endswith("relay.parts"))
        ]
    )


def test_callbacks_are_passed_to_constructors() -> None:
    found = {
        f"{target}, in {name_of(path).rpartition('/')[0]}"
        for path in python_files("src")
        for target in assigned_callbacks(tree_of(path))
    }
    if len(found) > CALLBACKS_ASSIGNED_MAX:
        report(sorted(found))


def test_a_class_name_means_one_class() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in python_files("src"):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(name_of(path))
    doubled = [f"{name}: {', '.join(where)}" for name, where in defined.items() if len(where) > 1]
    if len(doubled) > DOUBLED_CLASS_NAMES_MAX:
        report(sorted(doubled))


def test_arguments_are_written_out() -> None:
    report(
        [
            f"{name_of(path)}:{node.lineno} unpacks a literal: {ast.unparse(node)}"
            for path in python_files(*FOLDERS)
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List)
        ]
    )


def test_a_small_module_with_one_importer_is_part_of_it() -> None:
    thin = [
        f"{name_of(path)} has {len(lines_of(path))} lines and one importer"
        for name, path in modules().items()
        if path.name not in {"__init__.py", "__main__.py"}
        and len(lines_of(path)) < THIN_MODULE_LINES
        and len(importers()[name]) <= 1
        and not stands_alone(path)
    ]
    if len(thin) > THIN_MODULES_MAX:
        report(sorted(thin))


def test_the_readme_is_short() -> None:
    words = len((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert words <= README_WORDS_MAX, f"README.md has {words} words, at most {README_WORDS_MAX}"


def test_a_backtest_calls_its_stages_in_order_on_one_page() -> None:
    page = ROOT / "src/waypost/pipeline/replay/backtest.py"
    called = [
        node.func.id
        for node in sorted(
            (one for one in ast.walk(tree_of(page)) if isinstance(one, ast.Call)),
            key=lambda one: (one.lineno, one.col_offset),
        )
        if isinstance(node.func, ast.Name) and node.func.id in STAGES
    ]
    assert called == STAGES


def stands_alone(path: Path) -> bool:
    """Return whether a module is small by nature: a table with its schema, or only Protocols."""
    names = {
        target.id
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    classes = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    return {"NAME", "SCHEMA"} <= names or (
        bool(classes) and all("Protocol" in map(ast.unparse, one.bases) for one in classes)
    )


def folder_of(module: str, layer: str) -> str | None:
    """Return the folder of a layer that a module lies in; None for modules of the layer itself."""
    parts = module.removeprefix(f"waypost.{layer}.").split(".")
    is_package = modules()[module].name == "__init__.py"
    return parts[0] if len(parts) > 1 or is_package else None


def cycles_in(layer: str) -> Iterator[list[str]]:
    """Yield the cycles between the folders of a layer."""
    arrows: dict[str, set[str]] = defaultdict(set)
    inside = [name for name in modules() if name.startswith(f"waypost.{layer}.")]
    for name in inside:
        goes_to = folder_of(name, layer)
        for importer in importers()[name]:
            if importer in inside:
                comes_from = folder_of(importer, layer)
                if comes_from and goes_to and comes_from != goes_to:
                    arrows[comes_from].add(goes_to)
    for start in sorted(arrows):
        for path in paths_back(arrows, [start]):
            if min(path) == start:
                yield [*path, start]


def paths_back(arrows: dict[str, set[str]], path: list[str]) -> Iterator[list[str]]:
    """Yield the simple paths that extend `path` and lead back to its beginning."""
    for following in sorted(arrows[path[-1]]):
        if following == path[0]:
            yield path
        elif following not in path:
            yield from paths_back(arrows, [*path, following])


def assigned_callbacks(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes of another object that a function is assigned to."""
    functions = names_of_functions(ast.walk(tree))
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        methods = names_of_functions(scope.body) if isinstance(scope, ast.ClassDef) else set()
        for node in ast.walk(scope):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if isinstance(target, ast.Attribute) and not is_own(target):
                    is_function = may_be_function(node.value, functions, methods)
                    if is_function or target.attr.startswith("on_"):
                        yield ast.unparse(target)


def names_of_functions(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the functions among some nodes."""
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def may_be_function(value: ast.expr, functions: set[str], methods: set[str]) -> bool:
    """Return whether an expression is a function, a bound method, or a dict of these."""
    match value:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in methods
        case ast.Dict(values=values):
            return any(may_be_function(one, functions, methods) for one in values)
    return False


def is_own(target: ast.Attribute) -> bool:
    """Return whether an attribute belongs to the object whose method assigns it."""
    return ast.unparse(target.value) in {"self", "cls"}
