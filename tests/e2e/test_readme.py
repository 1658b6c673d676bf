"""Documents are executed: programs and commands run, settings, fields and names exist."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
from typer.core import TyperCommand, TyperGroup

from tests.architecture.test_docs import NAMED_TEST, names_a_test
from tests.cli.command_tree import command_tree
from waypost import Reason, Settings
from waypost.policy.access import parse_rules
from waypost.policy.breakers import TRANSITIONS
from waypost.policy.settings import lint, merge_settings, to_config_document
from waypost.wire import events

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "waypost"
README_WORDS_MAX = 800
COMMAND_LINE = "docs/reference/command-line.md"
SHELL_OPERATORS = ("|", ">")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAME = """import asyncio
from waypost import Relay

async def main() -> None:
    async with Relay("waypost-data") as relay:
{body}

asyncio.run(main())
"""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run(directory: Path, *arguments: object) -> str:
    """Return the output of a Python program, run in `directory` with this source."""
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def blocks(name: str, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(read(name)) if found == language]


def programs() -> Iterator[Any]:
    """Yield each Python program with the output on the page, or None."""
    for name in ("README.md", "docs/python.md"):
        text = read(name)
        found = list(BLOCK.finditer(text))
        for number, block in enumerate(found):
            if block[1] != "python":
                continue
            following = found[number + 1] if number + 1 < len(found) else None
            is_output = following is not None and following[1] == "text"
            close = following is not None and not text[block.end() : following.start()].strip()
            expected = following[2] if following is not None and is_output and close else None
            line = text.count("\n", 0, block.start()) + 2
            yield pytest.param(block[2], expected, id=f"{name}-line-{line}")


@pytest.mark.process
@pytest.mark.parametrize(("program", "expected"), list(programs()))
def test_a_program_on_a_page_runs_and_prints_the_output_on_the_page(
    program: str, expected: str | None, tmp_path: Path
) -> None:
    whole = "asyncio.run(" in program
    script = tmp_path / "program.py"
    script.write_text(program if whole else FRAME.format(body=indent(program, " " * 8)))
    printed = run(tmp_path, script)
    if expected is not None:
        assert printed == expected


def test_the_readme_shows_a_program_and_its_output() -> None:
    [first, *_] = [one.values for one in programs()]
    assert first[1]


@pytest.mark.process
def test_the_served_relay_of_the_readme_works(tmp_path: Path) -> None:
    _, _, rest = read("README.md").partition("\n## Serve a relay, connect two agents\n")
    section, _, _ = rest.partition("\n## ")
    found = BLOCK.findall(section)
    assert [language for language, _ in found] == ["sh", "sh", "text", "sh"]
    serve, agents, printed, operator = (body for _, body in found)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]  # 7171 may be in use
    waypost = tmp_path / "waypost"
    waypost.write_text(f'#!/bin/sh\nexec {sys.executable} -m waypost "$@"\n')
    waypost.chmod(0o700)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    terminal: dict[str, Any] = {"cwd": tmp_path, "env": environment, "text": True}
    first = subprocess.Popen(
        ["sh", "-c", f"exec {serve.strip()} --port {port}"], stdout=subprocess.PIPE, **terminal
    )
    try:
        assert first.stdout is not None
        assert f"http://127.0.0.1:{port}" in first.stdout.readline()
        second = subprocess.run(
            ["sh", "-ec", (agents + operator).replace("7171", str(port))],
            capture_output=True,
            timeout=600,
            check=False,
            **terminal,
        )
    finally:
        first.terminate()
        first.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    lines = re.sub(r"\b01[0-9A-Z]{24}\b", "ID", second.stdout).splitlines()
    expected = re.sub(r"\b01[0-9A-Z]{24}\b", "ID", printed).splitlines()
    assert [line for line in lines if line.startswith("ID")] == expected
    assert "served, 0 agents connected" in second.stdout


def masked(line: str) -> str:
    """Return a line without numbers and without rules as wide as the terminal."""
    return re.sub(r"\d+", "0", line.rstrip(" ─"))


@pytest.mark.process
def test_subcommands_of_run_on_the_pages_exist() -> None:
    usage = subprocess.run(
        [ROOT / "run", "help"], capture_output=True, text=True, timeout=600, check=True
    )
    can = set(re.findall(r"^\./run (\w+)", usage.stdout, re.MULTILINE))
    asked = {
        word
        for page in ("README.md", "CONTRIBUTING.md", "docs/benchmarks.md", COMMAND_LINE)
        for word in re.findall(r"\./run (\w+)", read(page))
    }
    assert asked <= can


def commands() -> Iterator[Any]:
    pages = [f"docs/{page.name}" for page in sorted(DOCS.glob("*.md"))]
    for name in ("README.md", COMMAND_LINE, *pages):
        for block in blocks(name, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                ends = [words.index(one) for one in SHELL_OPERATORS if one in words]
                words = words[: min(ends, default=len(words))]
                if words[:2] == ["./run", "waypost"]:
                    words = words[1:]
                if words and words[0] == "waypost":
                    yield pytest.param(words[1:], id=f"{name}: {line[:60]}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_on_a_page_is_valid(words: list[str]) -> None:
    command: Any = command_tree()
    while isinstance(command, TyperGroup):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))  # raises for unknown arguments


def verbs(group: Any, prefix: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from verbs(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_the_page_on_the_command_line_shows_every_command_and_option() -> None:
    page = read(COMMAND_LINE)
    group = command_tree()
    absent = [name for name, _ in verbs(group) if f"waypost {name}" not in page]
    absent += [
        f"{name} {option}"
        for name, command in verbs(group)
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option not in page
    ]
    assert absent == []


def test_examples_of_settings_and_rules_are_valid() -> None:
    documents = blocks("docs/configuration.md", "json")
    assert documents
    for document in documents:
        if document.startswith("["):
            parse_rules(document.encode())
        else:
            assert lint(merge_settings(Settings(), document.encode())) == []


def test_the_example_settings_in_json_and_python_are_equal() -> None:
    [program] = blocks("docs/configuration.md", "python")
    names: dict[str, Any] = {}
    exec(program, names)
    document = blocks("docs/configuration.md", "json")[0]
    assert names["settings"] == merge_settings(Settings(), document.encode())


def leaves(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@pytest.mark.parametrize(("key", "default"), list(leaves(to_config_document(Settings()))))
def test_the_reference_names_every_setting_with_its_default(key: str, default: object) -> None:
    *groups, name = key.split(".")
    if groups and groups[-1].startswith("tier"):
        name = f"{groups.pop()}.{name}"
    page = read("docs/reference/settings.md")
    heading = f"### `{'.'.join(groups)}`" if groups else "## Settings"
    assert heading in page
    section = page.split(heading, 1)[1].split("\n#", 1)[0]
    [row] = [line for line in section.splitlines() if line.startswith(f"| `{name}` |")]
    python, documented = (cell.strip().strip("`") for cell in row.split("|")[2:4])
    assert python == ".".join(re.sub("([A-Z])", r"_\1", part).lower() for part in name.split("."))
    assert documented == json.dumps(default)


def event_types(union: UnionType) -> Iterator[type[msgspec.Struct]]:
    for member in get_args(union):
        yield from event_types(member) if isinstance(member, UnionType) else (member,)


EVENTS = [*event_types(events.AnyEvent), events.Commit]
KINDS = [str(one.__struct_config__.tag) for one in EVENTS]


@pytest.mark.parametrize("event", EVENTS, ids=KINDS)
def test_the_page_on_the_journal_names_every_kind_and_field(event: type[msgspec.Struct]) -> None:
    page = read("docs/journal.md")
    wanted = (str(event.__struct_config__.tag), *event.__struct_encode_fields__)
    assert [name for name in wanted if f"`{name}`" not in page] == []


def test_lines_on_the_page_on_the_journal_are_lines_of_a_journal() -> None:
    lines = [line for block in blocks("docs/journal.md", "json") for line in block.splitlines()]
    shown = set()
    for line in lines:
        commit = line.encode().startswith(events.COMMIT_PREFIX)
        event = (events.decode_commit if commit else events.decode_event)(line.encode())
        shown.add(str(type(event).__struct_config__.tag))
        assert events.encode_event(event) == line.encode()
    assert shown == set(KINDS)


def test_the_batch_on_the_page_on_the_journal_has_a_valid_commit_line() -> None:
    *lines, last = blocks("docs/journal.md", "json")[0].splitlines(keepends=True)
    content = "".join(lines).encode()
    commit = events.decode_commit(last.encode())
    assert (commit.count, commit.bytes, commit.crc) == (
        len(lines),
        len(content),
        zlib.crc32(content),
    )


@pytest.mark.parametrize("reason", Reason)
def test_the_page_on_policies_names_every_reason(reason: Reason) -> None:
    assert f"| `{reason}` |" in read("docs/policies.md")


def test_the_breaker_diagram_equals_its_transition_table() -> None:
    [diagram] = blocks("docs/policies.md", "mermaid")
    drawn = set(re.findall(r"(\w+) --> (\w+): (.+)", diagram))
    assert drawn == {(before, after, why) for (before, why), after in TRANSITIONS.items()}


def test_tests_named_on_any_page_exist() -> None:
    named = {
        (page.name, name)
        for page in (ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"))
        for name in NAMED_TEST.findall(page.read_text(encoding="utf-8"))
    }
    assert sorted(found for found in named if not names_a_test(found[1])) == []


def test_the_readme_is_short() -> None:
    assert len(read("README.md").split()) <= README_WORDS_MAX


def test_the_map_names_every_folder_and_no_other() -> None:
    page = read("ARCHITECTURE.md")
    [layers] = [text for _, text in BLOCK.findall(page) if text.startswith("cli ")]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    packages |= {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    named = {word for line in layers.splitlines() for word in line[:27].split()} - {"·", "|"}
    assert named == packages
    rows = re.findall(r"^\| `(\w+)/(\w+)` \|", page, re.MULTILINE)
    folders = {
        (layer, path.name)
        for layer in {layer for layer, _ in rows}
        for path in (PACKAGE / layer).iterdir()
        if path.is_dir() and not path.name.startswith("_")
    }
    assert set(rows) == folders


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_named_for_contributors_exist(name: str) -> None:
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", read(name))
    roots = (ROOT, PACKAGE)
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{n:04}" for n in range(1, len(pages) + 1)]
    listed = read("docs/decisions/README.md")
    assert [page.name for page in pages if f"({page.name})" not in listed] == []
