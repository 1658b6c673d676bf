"""deploy/waypost.service: its command and its sandbox."""

import ctypes
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tests.packaging.distribution import ROOT, clean_environment
from waypost.cli.app import app

UNIT = ROOT / "deploy" / "waypost.service"
PR_GET_MDWE = 66
# Applies MemoryDenyWriteExecute= to this process, then executes the command line.
HARDENED = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
assert ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0
from waypost.__main__ import main
main()
"""


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DynamicUser", "yes"),
        ("StateDirectory", "waypost"),
        ("StateDirectoryMode", "0700"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("NoNewPrivileges", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("CapabilityBoundingSet", ""),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
        ("Restart", "on-failure"),
    ],
)
def test_it_drops_all_privileges_a_relay_does_not_need(name: str, value: str) -> None:
    assert settings()[name] == [value]


def test_the_file_limit_covers_the_maximum_of_agents() -> None:
    assert int(settings()["LimitNOFILE"][0]) > 2 * 10_000


def test_it_starts_an_existing_command() -> None:
    [line] = settings()["ExecStart"]
    program, verb, *options = shlex.split(line)
    assert Path(program).is_absolute()
    serve = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    parameters = serve.make_context(verb, options).params
    assert str(parameters["data_dir"]) == "${STATE_DIRECTORY}"
    assert parameters["host"] == "127.0.0.1"


@pytest.mark.process
@pytest.mark.skipif(
    not sys.platform.startswith("linux") or ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0,
    reason="this kernel cannot forbid memory that is written and run",
)
def test_a_relay_runs_without_writable_executable_memory(tmp_path: Path) -> None:
    relay = subprocess.Popen(
        [sys.executable, "-c", HARDENED, "serve", "--port", "0", "--data-dir", tmp_path / "data"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert relay.stdout is not None
    said = relay.stdout.readline()
    found = re.search(r"at (http://\S+)$", said)
    try:
        assert found is not None
        script = (
            f"URL={found[1]}; WAYPOST='{sys.executable} -m waypost'\n"
            "$WAYPOST send agent.a 1 --url $URL && $WAYPOST keys new agent.a --out key &&\n"
            "$WAYPOST listen agent.a --key key --count 1 --url $URL"
        )
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        relay.terminate()
        _, log = relay.communicate(timeout=60)
    assert relay.returncode == 0, log


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_no_fault_with_it(tmp_path: Path) -> None:
    unit = (
        tmp_path / "waypost.service"
    )  # with an existing program, so that systemd does not report that
    unit.write_text(UNIT.read_text().replace("/opt/waypost/bin/waypost", sys.executable))
    verify = ["systemd-analyze", "verify", unit]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
