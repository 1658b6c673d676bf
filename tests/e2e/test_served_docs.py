"""Run docs/http.md from top to bottom against its own relay.

It runs once with the `curl` and `openssl` of this machine, where they are installed, and once with
the replacements of `shell_tools`, which accept exactly the flags on the page. A plain WebSocket
client executes the WebSocket transcripts.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.e2e import shell_tools
from tests.e2e.test_readme import ROOT, read
from tests.e2e.transcripts import (
    PATIENCE_S,
    Shell,
    check_http,
    check_json,
    check_value,
    filled_in,
    page_blocks,
)
from waypost.server.http.callers import Access
from waypost.server.http.errors import REASONS, STATUSES
from waypost.server.http.operations import OPERATIONS
from waypost.wire.frames import JSON_PROTOCOL
from waypost.wire.problems import STATUS

PAGE = "docs/http.md"
ADDRESS = "127.0.0.1:7171"
ENOUGH = {"curl": ["curl", "--version"], "openssl": ["openssl", "pkeyutl", "-help"]}
WHO = {
    Access.ANYONE: "anyone",
    Access.PUBLISHER: "publisher",
    Access.SCRAPER: "scraper",
    Access.AGENT: "agent",
    Access.OPERATOR: "operator",
}


def is_installed(name: str) -> bool:
    """Return whether this machine has a tool that supports the flags on the page."""
    if shutil.which(name) is None:
        return False
    usage = subprocess.run(ENOUGH[name], capture_output=True, text=True, check=False)
    return name != "openssl" or "-rawin" in usage.stdout + usage.stderr


INSTALLED = tuple(name for name in shell_tools.NAMES if is_installed(name))


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    """Run `waypost serve` in `tmp_path`, yield its address, and stop it with a signal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "waypost", "serve", "--port", "0", "--log-format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("{") and json.loads(line)["message"] == "ready":
            break
    assert process.poll() is None, lines
    yield json.loads(lines[-1])["url"].removeprefix("http://")
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, rest
    assert '"level":"error"' not in "".join(lines) + rest


@pytest.mark.process
@pytest.mark.parametrize("tools", [(), INSTALLED], ids=["replacements", "installed"])
def test_the_page_on_http_runs_from_top_to_bottom(
    tools: tuple[str, ...], relay: str, tmp_path: Path
) -> None:
    missing = tuple(name for name in shell_tools.NAMES if name not in tools)
    shell_tools.install(tmp_path / "bin", missing)
    printed, ran = "", 0
    with Shell(tmp_path, f"{tmp_path / 'bin'}:{os.environ['PATH']}") as shell:
        for language, content, line in page_blocks(PAGE):
            try:
                printed = _do(language, content.replace(ADDRESS, relay), printed, shell)
            except (AssertionError, ConnectionClosed) as problem:
                pytest.fail(f"{PAGE}, line {line}: {problem}", pytrace=False)
            ran += language in ("bash", "websocat")
    assert ran > 20
    assert not printed.strip()


def _do(language: str, content: str, printed: str, shell: Shell) -> str:
    """Run a block, or compare it with the last output; return the output to compare next."""
    match language:
        case "bash":
            assert not printed.strip(), f"the page does not show: {printed}"
            return shell.run(content)
        case "websocat":
            _speak(content, shell)
        case "json" | "http" | "text":
            _check(language, content, printed)
    return ""


def _check(language: str, expected: str, printed: str) -> None:
    match language:
        case "json":
            check_json(expected, printed)
        case "http":
            check_http(expected, printed)
        case _:
            assert printed.strip() == expected.strip()


def _speak(transcript: str, shell: Shell) -> None:
    command, *lines = transcript.splitlines()
    websocat, _, protocol, url = command.split()
    assert (websocat, protocol) == ("websocat", JSON_PROTOCOL)
    captured: dict[str, str] = {}
    with connect(url, subprotocols=[Subprotocol(protocol)], proxy=None) as socket:
        waiting: list[Any] = []
        for line in lines:
            direction, text = line.split(" ", 1)
            if direction == ">":
                _prove(text, captured, shell)
                socket.send(filled_in(text, captured))
            elif text.startswith("CLOSE"):
                _check_end(socket, int(text.split()[1]))
            else:
                check_value(json.loads(text), _next(socket, waiting), captured)
        assert not waiting, f"the page does not show: {waiting}"


def _next(socket: ClientConnection, waiting: list[Any]) -> Any:
    """Return the next operation, from a single frame or a list."""
    if not waiting:
        frame = json.loads(socket.recv(timeout=PATIENCE_S))
        waiting += frame if isinstance(frame, list) else [frame]
    return waiting.pop(0)


def _prove(text: str, captured: dict[str, str], shell: Shell) -> None:
    """Capture the KEY and SIGNATURE that `prove SUBJECT NONCE` sets."""
    operation = json.loads(text)
    if operation["op"] != "auth":
        return
    nonce = captured["NONCE"]
    printed = shell.run(f"prove {operation['subject']} {nonce}; echo $KEY $SIGNATURE")
    captured["KEY"], captured["SIGNATURE"] = printed.split()


def _check_end(socket: ClientConnection, code: int) -> None:
    with pytest.raises(ConnectionClosed) as ended:
        socket.recv(timeout=PATIENCE_S)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == code


def test_the_page_on_http_lists_every_route_with_its_callers() -> None:
    documented = re.findall(r"^\| `(\w+) (/\S*)` \| ([\w, ]+) \|", read(PAGE), re.MULTILINE)
    assert sorted(documented) == sorted(
        (one.method, one.path, WHO[one.access]) for one in OPERATIONS
    )


def test_the_page_on_http_names_every_parameter_of_a_query() -> None:
    rows = dict(re.findall(r"^\| `(\w+ /\S*)` \| [\w, ]+ \| (.*) \|$", read(PAGE), re.MULTILINE))
    absent = [
        f"{one.method} {one.path}: {name}"
        for one in OPERATIONS
        for name in one.parameters.__struct_encode_fields__
        if name not in one.path_names and f"`{name}`" not in rows[f"{one.method} {one.path}"]
    ]
    assert absent == []


def test_the_page_on_http_lists_every_status_and_reason() -> None:
    documented = set(re.findall(r"^\| (\d{3}) \| `?(\w*)`? ?\|", read(PAGE), re.MULTILINE))
    wanted = {(str(status), reason) for status, reason in REASONS.items()}
    wanted |= {(str(status), str(reason)) for _, status, reason in STATUSES if reason}
    wanted |= {(str(status), str(reason)) for reason, status in STATUS.items()}
    wanted |= {("431", "too_large")}  # before the request is routed
    quota = {("429", "quota_exceeded")}  # shown without a reason
    assert documented == (wanted - quota) | {("429", "")}
