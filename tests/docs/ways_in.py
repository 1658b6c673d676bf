"""What a test reaches: the names it uses, and those that its helpers and fixtures use.

A user reaches Waypost through the names of a few packages, the command line, HTTP, WebSockets, MCP
and the files of the data directory. A test that shows something to a user goes the same way.

Rule 1  From a test function on, every name is followed: imports, functions and constants of its
        module, fixtures by the names of parameters (`conftest.py` upwards), autouse fixtures, and
        modules under `tests/`.
Rule 2  A name of Waypost that is reached is in the `__all__` of one of the `PUBLIC` packages.
Rule 3  The modules in `WAYS_IN` are not followed: they start the command line or a server, and the
        test talks to that. The attributes in `INSIDE` lead around it, as private attributes do.
Rule 4  Programs and patches in strings count as imports.
Rule 5  Something of Waypost is reached: a test of nothing shows nothing.

Types are not inferred: a public object whose public attribute is an inner object is not noticed.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PUBLIC = ("waypost", "waypost.client", "waypost.testing")
WAYS_IN = {
    "tests/cli/conftest.py": "runs commands",
    "tests/client/conftest.py": "serves a relay on a port, and connects agents to it",
    "tests/cli/serve_process.py": "runs `waypost serve` in a process, and commands against it",
    "tests/dashboard/conftest.py": "opens the dashboard of a served relay in a browser",
    "tests/e2e/shell_tools.py": "runs shell commands",
    "tests/harness/listening_relay.py": "serves a relay on a port",
    "tests/harness/relay_process.py": "runs a relay in a process",
    "tests/mcp/models.py": "calls tools through an MCP client",
    "tests/server/http/conftest.py": "serves the whole application to HTTP requests",
    "tests/server/http/http_relay.py": "sends HTTP requests to the whole application",
}
WAYS_IN_PATHS = {ROOT / path for path in WAYS_IN}
INSIDE = {"app", "context", "relay", "waiting"}
PRIVATE_ATTRIBUTE = re.compile(r"_(?!_)\w+")
IN_STRING = re.compile(r"^\s*(?:from|import) (waypost[\w.]*)(?: import ([\w, ]+))?", re.MULTILINE)
PATCHED = re.compile(r"(waypost(?:\.\w+)*)\.(\w+)")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Reached(msgspec.Struct):
    """The public names and ways in that a test reaches, and what else it reaches."""

    public: set[str]
    inner: set[str]


class Scope(msgspec.Struct):
    """The imports and definitions at the top of a module."""

    path: Path
    imports: dict[str, tuple[str, str]]
    definitions: dict[str, Definition]


def reached_by(path: Path, name: str) -> Reached:
    """Return what a test function reaches."""
    walk = Walk()
    walk.follow(scope_of(path), name)
    walk.follow(scope_of(path), "pytestmark")
    for fixture in autouse_fixtures(path):
        walk.follow(*fixture)
    return walk.reached


def is_public(module: str, name: str) -> bool:
    """Return whether `from module import name` is something that users are promised."""
    return module in PUBLIC and name in public_names(module)


@cache
def public_names(module: str) -> frozenset[str]:
    return frozenset(getattr(import_module(module), "__all__", ()))


@cache
def scope_of(path: Path) -> Scope:
    scope = Scope(path, {}, {})
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        scope.imports |= imports_of(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.definitions[node.name] = node
            case ast.Assign():
                targets = [name for one in node.targets for name in ast.walk(one)]
                names = [one.id for one in targets if isinstance(one, ast.Name)]
                scope.definitions |= dict.fromkeys(names, node)
            case ast.AnnAssign(target=ast.Name(id=name)):
                scope.definitions[name] = node
            case _:
                pass
    return scope


def imports_of(node: ast.AST) -> dict[str, tuple[str, str]]:
    """Return the names that an import binds, with module and name ("" for a whole module)."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return {one.asname or one.name: (module, one.name) for one in node.names}
    if isinstance(node, ast.Import):
        return {one.asname or one.name.partition(".")[0]: (one.name, "") for one in node.names}
    return {}


def conftests(path: Path) -> Iterator[Path]:
    """Yield the module itself, then every `conftest.py` that applies to it, nearest first."""
    yield path
    for directory in path.parents:
        if (directory / "conftest.py").is_file():
            yield directory / "conftest.py"
        if directory == ROOT:
            return


def autouse_fixtures(path: Path) -> Iterator[tuple[Scope, str]]:
    for scope in map(scope_of, conftests(path)):
        for name, node in scope.definitions.items():
            if any(
                "autouse=True" in ast.unparse(one) for one in getattr(node, "decorator_list", [])
            ):
                yield scope, name


class Walk:
    """Follows names and collects what they lead to."""

    def __init__(self) -> None:
        self.reached = Reached(set(), set())
        self._seen: set[tuple[Path, str]] = set()

    def follow(self, scope: Scope, name: str) -> None:
        """Follow a name at the top of a module."""
        if (scope.path, name) in self._seen:
            return
        self._seen.add((scope.path, name))
        if name in scope.imports:
            self._import(*scope.imports[name])
        elif scope.path in WAYS_IN_PATHS:
            self.reached.public.add(str(scope.path.relative_to(ROOT)))
        elif name in scope.definitions:
            self._visit(scope, scope.definitions[name])

    def _import(self, module: str, name: str) -> None:
        if module.partition(".")[0] == "tests":
            self._follow_tests(module, name)
        elif whole_module(module, name) in PUBLIC:
            pass  # judged by the attributes that are used
        elif name == "__all__" or is_public(module, name):
            self.reached.public.add(f"{module}.{name}")
        elif module.partition(".")[0] == "waypost":
            self.reached.inner.add(f"{module}.{name}".rstrip("."))

    def _follow_tests(self, module: str, name: str) -> None:
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            self.follow(scope_of(path), name)
        elif (whole := ROOT.joinpath(*module.split("."), f"{name}.py")).is_file():
            scope = scope_of(whole)
            for one in [*scope.definitions, *scope.imports]:
                self.follow(scope, one)

    def _visit(self, scope: Scope, definition: Definition) -> None:
        local: dict[str, tuple[str, str]] = {}
        for node in ast.walk(definition):
            local |= imports_of(node)
        for imported in local.values():
            self._import(*imported)
        for node in ast.walk(definition):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._fixtures(scope, node)
                case ast.Name(id=name) if name not in local:
                    self.follow(scope, name)
                case ast.Attribute(value=value, attr=attr):
                    self._attribute(scope, value, attr)
                case ast.Constant(value=str(text)):
                    self._program(text)
                case ast.Call(func=ast.Attribute(attr="usefixtures")):
                    self._use_fixtures(scope, node)
                case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(), *_]):
                    self._patch(str(node.args[0].value))
                case _:
                    pass

    def _fixtures(self, scope: Scope, function: Function) -> None:
        if function.name.startswith("test_") or is_fixture(function):
            for parameter in [*function.args.args, *function.args.kwonlyargs]:
                self._fixture(scope, parameter.arg)

    def _use_fixtures(self, scope: Scope, call: ast.Call) -> None:
        for named in call.args:
            self._fixture(scope, str(getattr(named, "value", "")))

    def _fixture(self, scope: Scope, name: str) -> None:
        for found in map(scope_of, conftests(scope.path)):
            if is_fixture(found.definitions.get(name)) or name in found.imports:
                self.follow(found, name)
                return

    def _attribute(self, scope: Scope, value: ast.expr, attr: str) -> None:
        named = isinstance(value, ast.Name) and scope.imports.get(value.id)
        if named and whole_module(*named) in PUBLIC:
            self._import(whole_module(*named), attr)
        elif isinstance(value, ast.Name) and value.id in ("self", "cls"):
            pass  # a part of the test
        elif attr in INSIDE or PRIVATE_ATTRIBUTE.fullmatch(attr):
            self.reached.inner.add(f".{attr}")

    def _program(self, text: str) -> None:
        for module, names in IN_STRING.findall(text):
            for name in names.split(", "):
                self._import(module, name.strip())

    def _patch(self, target: str) -> None:
        if patched := PATCHED.fullmatch(target):
            self._import(*patched.groups())


def whole_module(module: str, name: str) -> str:
    """Return the name of the module that an import binds, if it binds one."""
    return f"{module}.{name}".rstrip(".")


def is_fixture(node: ast.AST | None) -> bool:
    return isinstance(node, Function) and any(
        "fixture" in ast.unparse(one) for one in node.decorator_list
    )
