"""Run the blocks of a page in a shell and compare the responses.

A response on a page is an example. Values that change with each run are not compared: generated
ids, keys, tokens, times. A word in capitals matches any value, and the same value further down. An
object with "…" in it omits fields.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.test_readme import BLOCK, read

OMITTED = "…"
CAPITALS = re.compile(r"[A-Z]+[0-9]?")
NEW_EACH_TIME = (
    (re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"[\w-]{20,}\.[\w-]{43}(?![\w-])"), "<token>"),
    (re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])"), "<key>"),
)
LONG_NUMBER = 10**11
"""Milliseconds and microseconds since the epoch are larger."""
PATIENCE_S = 60


def page_blocks(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield language, content and line of every block of a page."""
    text = read(name)
    for block in BLOCK.finditer(text):
        yield block[1], block[2], text.count("\n", 0, block.start()) + 2


class Shell:
    """Hold one bash for a whole page, so that variables and functions persist."""

    def __init__(self, directory: Path, path: str) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env={**os.environ, "PATH": path, "no_proxy": "*"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str) -> str:
        """Return the output of a script that must succeed; kill it after a timeout."""
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{script}\nprintf '\\n<%s over>\\n' $?\n")
        self._bash.stdin.flush()
        timer = threading.Timer(PATIENCE_S, self._bash.kill)
        timer.start()
        printed = ""
        try:
            for line in self._bash.stdout:
                if re.fullmatch(r"<\d+ over>\n", line):
                    assert line == "<0 over>\n", f"{script}\nfailed: {printed}"
                    return printed
                printed += line
        finally:
            timer.cancel()
        raise AssertionError(f"{script}\ndid not end: {printed}")

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.close()
        self._bash.wait(PATIENCE_S)
        self._bash.stdout.close()


def json_values(text: str) -> list[Any]:
    """Return all JSON values in a text, in order."""
    decoder, values, rest = json.JSONDecoder(), [], text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        values.append(value)
        rest = rest[end:].lstrip()
    return values


def check_json(expected: str, printed: str) -> None:
    wanted, found = json_values(expected), json_values(printed)
    assert len(found) == len(wanted), printed
    for one, other in zip(wanted, found, strict=True):
        check_value(one, other, {})


def check_http(expected: str, printed: str) -> None:
    """Compare the status line, the headers on the page, and the content."""
    wanted_head, _, wanted = expected.partition("\n\n")
    head, _, content = printed.replace("\r", "").partition("\n\n")
    status, *lines = wanted_head.splitlines()
    assert head.splitlines()[0] == status
    absent = {_header(line) for line in lines} - {_header(line) for line in head.splitlines()[1:]}
    assert not absent, head
    check_json(wanted, content)


def _header(line: str) -> str:
    name, _, value = line.partition(": ")
    return f"{name.lower()}: {'<seconds>' if name.lower() == 'retry-after' else value}"


def check_value(wanted: Any, found: Any, captured: dict[str, str], path: str = "$") -> None:
    """Fail unless `found` matches the page; store the values of words in capitals in `captured`."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        shown = {name for name in wanted if name != OMITTED}
        assert shown <= set(found) if OMITTED in wanted else shown == set(found), (path, found)
        for name in shown:
            if not (name == "retry_after_ms" and wanted[name] and found[name]):
                check_value(wanted[name], found[name], captured, f"{path}.{name}")
    elif isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), (path, found)
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            check_value(one, other, captured, f"{path}[{number}]")
    elif isinstance(wanted, str) and CAPITALS.fullmatch(wanted):
        assert isinstance(found, str), (path, found)
        captured[wanted] = found
    else:
        assert _plain(found) == _plain(wanted), (path, found)


def _plain(value: Any) -> Any:
    """Return a value without the parts that change with each run."""
    if isinstance(value, int) and value > LONG_NUMBER:
        return "<number>"
    if isinstance(value, str):
        for pattern, name in NEW_EACH_TIME:
            value = pattern.sub(name, value)
    return value


def filled_in(line: str, captured: dict[str, str]) -> str:
    """Return a line to send, with its words in capitals replaced by their values."""

    def fill(found: re.Match[str]) -> str:
        return json.dumps(captured[found[1]]) if CAPITALS.fullmatch(found[1]) else found[0]

    return re.sub(r'"([^"]*)"', fill, line)
