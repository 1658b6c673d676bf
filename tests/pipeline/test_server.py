"""The Spark server of `waypost pipeline serve`: found, used, private, and gone when idle.

The server and the commands are processes of their own, with their own cache directory.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.eventually import eventually_blocking
from tests.pipeline.test_convert import write_older
from tests.pipeline.test_privacy import exposed
from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.spark import server as spark_server
from waypost.pipeline.spark.progress import report_progress
from waypost.pipeline.spark.server import find_server
from waypost.pipeline.spark.session import ServerState, SparkChoice, spark_session
from waypost.simulate import SimulationOptions, simulate

pytestmark = [pytest.mark.spark, pytest.mark.slow]

USING = "using the Spark server of `waypost pipeline serve` (pid"
TIGHTER = '{"reliability": {"rateLimit": {"maxPerWindow": 10}}}'
STARTS_WITHIN_S = 240.0


class Machine:
    """A directory to work in, and a cache directory with its Spark server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache")}
        self.state_file = directory / "cache" / "waypost" / "server.json"

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a server elsewhere than where commands run; returns when it is ready."""
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        server = subprocess.Popen(
            [sys.executable, "-m", "waypost", "pipeline", "serve", *arguments],
            env=self.environment,
            cwd=elsewhere,
            stderr=subprocess.PIPE,
        )
        eventually_blocking(
            lambda: self.state_file.exists() or server.poll() is not None,
            "a Spark server",
            timeout_s=STARTS_WITHIN_S,
        )
        assert server.poll() is None, server.stderr and server.stderr.read().decode()
        return server

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a pipeline command in the directory."""
        return subprocess.run(
            [sys.executable, "-m", "waypost", "pipeline", *arguments],
            env={**self.environment, "COLUMNS": "200"},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def state(self) -> ServerState:
        return msgspec.json.decode(self.state_file.read_bytes(), type=ServerState)

    def find(self) -> tuple[ServerState | None, list[str]]:
        """Look for the server as a command does; returns it and what is wrong with it."""
        problems: list[str] = []
        with find_server(self.environment, problems.append) as found:
            return found, problems


def ended(server: "subprocess.Popen[bytes]") -> str:
    """Return what a server has printed, when it has ended."""
    _, printed = server.communicate(timeout=STARTS_WITHIN_S)
    return printed.decode()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield a machine whose server runs, and is killed at the end."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    before = os.umask(0o022)
    server = machine.start()
    try:
        yield machine
    finally:
        os.umask(before)
        server.terminate()
        ended(server)


@pytest.fixture
def without_server(tmp_path: Path) -> Machine:
    """Return a machine with a cache directory and no server."""
    (tmp_path / "cache" / "waypost").mkdir(parents=True, mode=0o700)
    return Machine(tmp_path)


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """Yield a socket of somebody else, which accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@contextlib.contextmanager
def lock_held(machine: Machine) -> Iterator[None]:
    """Hold the lock of a living server."""
    with (machine.state_file.parent / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_state(machine: Machine, state: ServerState) -> None:
    machine.state_file.touch(mode=0o600)
    machine.state_file.write_bytes(msgspec.json.encode(state))


def run_without_end(state: ServerState, then: Callable[[], None]) -> None:
    """Run a query that would take years, and call `then` when it runs."""
    with spark_session(SparkChoice(server=state), os.environ) as spark:
        # The first progress that is reported: the query has tasks.
        calls = iter([then])
        with report_progress(spark, lambda _: next(calls, lambda: None)()):
            spark.range(10**18).selectExpr("max(hash(hash(id)))").collect()


def test_every_job_finds_the_server_and_gives_the_usual_results(machine: Machine) -> None:
    directory = machine.directory
    simulate(SimulationOptions(messages=1500, out=directory / "traffic", agents=40, seed=2))
    (directory / "tighter.json").write_text(TIGHTER)
    (directory / "mails.txt").write_text("src dst time\n1 2 1000000\n1 2 1000001\n")
    lake = ("--lake", "lake")
    commands = {
        ("run", "--journal", "traffic", *lake): "Report: lake/report.html",
        ("backtest", *lake): " 0 differences (0.00%)",
        ("backtest", "--settings", "tighter.json", "--out", "out", *lake): "rate_limited",
        ("recommend", "--reject-at-most", "0.01", *lake): "reliability.rateLimit.maxPerWindow",
        ("restore", "--data-dir", "new", *lake): "estored",
        ("report", *lake): "Report: lake/report.html",
        ("convert", *lake): "up to date",
        ("import-trace", "mails.txt", "--lake", "mails"): "2 messages from 1 sender",
    }
    for command, expected in commands.items():
        done = machine.run(*command)
        assert expected in done.stdout, f"{command}: {done.stdout}{done.stderr}"
        assert f"{USING} {machine.state().pid})" in done.stderr
    for written in ("lake", "mails", "out"):
        assert exposed(directory / written) == []
    assert not any((directory / "elsewhere").iterdir())


def test_an_older_lake_is_converted_where_it_is(machine: Machine) -> None:
    directory = machine.directory
    simulate(SimulationOptions(messages=100, out=directory / "few", agents=24, seed=2))
    machine.run("run", "--journal", "few", "--lake", "present")
    with spark_session(SparkChoice(server=machine.state()), os.environ) as spark:
        write_older(open_lake(spark, str(directory / "present")), directory / "older")
    done = machine.run("convert", "--lake", "older")
    assert "Converted" in done.stdout, done.stderr
    assert not any((directory / "elsewhere").iterdir())


@pytest.mark.parametrize("wish", [("--no-server",), ("--master", "local[1]")])
def test_a_job_can_have_its_own_session(machine: Machine, wish: tuple[str, ...]) -> None:
    done = machine.run("build", "--lake", "none", *wish)
    assert "no lake at none" in done.stderr
    assert USING not in done.stderr


def test_only_the_owner_can_use_the_server(machine: Machine) -> None:
    assert exposed(machine.state_file.parent) == []
    found, problems = machine.find()
    assert found == machine.state()
    assert not problems
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(found.token.encode() in one for one in commands)
    stranger = msgspec.structs.replace(found, token="a guess")
    with (
        pytest.raises(Exception, match=r"(?i)unauthenticated|authentication"),
        spark_session(SparkChoice(server=stranger), os.environ) as spark,
    ):
        spark.range(1).count()


def test_a_second_server_does_not_start(machine: Machine) -> None:
    done = machine.run("serve")
    assert done.returncode != 0
    assert "a Spark server is running already" in done.stderr


def test_a_server_that_was_killed_is_not_used(without_server: Machine) -> None:
    server = without_server.start()
    os.kill(server.pid, signal.SIGKILL)
    ended(server)
    assert without_server.state_file.exists()
    assert without_server.find() == (None, [])


def test_a_server_that_starts_leaves_no_state_of_an_earlier_one(
    without_server: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    @contextlib.contextmanager
    def start(*_: object) -> Iterator[None]:
        found.append(without_server.find())
        raise SparkUnavailable("no Java today")
        yield

    monkeypatch.setattr(spark_server, "spark_session", start)
    with listening() as listener:
        port = listener.getsockname()[1]
        write_state(without_server, ServerState(port=port, token="t", pid=1, build="b"))
        with pytest.raises(SparkUnavailable, match="no Java today"):
            spark_server.serve(without_server.environment, 1.0, threading.Event(), lambda _: None)
    assert found == [(None, [])]


def test_a_server_that_stops_is_not_found(
    without_server: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    had_state: list[bool] = []

    @contextlib.contextmanager
    def stop_later(*_: object) -> Iterator[None]:
        yield
        had_state.append(without_server.state_file.exists())

    def look(_: ServerState) -> None:
        had_state.append(without_server.state_file.exists())

    monkeypatch.setattr(spark_server, "spark_session", stop_later)
    monkeypatch.setattr(spark_server, "has_local_paths", lambda _: True)
    monkeypatch.setattr(spark_server, "_wait", lambda *_: False)
    spark_server.serve(without_server.environment, 1.0, threading.Event(), look)
    assert had_state == [True, False]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_whose_server_ends_says_so_soon(without_server: Machine, end: signal.Signals) -> None:
    process = without_server.start()
    began_s = time.monotonic()
    with pytest.raises(SparkUnavailable, match="the Spark server has ended: run this again"):
        run_without_end(without_server.state(), lambda: process.send_signal(end))
    assert time.monotonic() - began_s < 60
    ended(process)


def test_a_server_without_jobs_ends(without_server: Machine) -> None:
    server = without_server.start("--idle", "1s")
    assert "no job for a while" in ended(server)
    assert server.returncode == 0
    assert not without_server.state_file.exists()


def test_a_process_that_has_taken_over_the_port_is_not_called(without_server: Machine) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
        write_state(without_server, ServerState(port=port, token="t", pid=1, build="b"))
        assert without_server.find() == (None, [])
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_server_of_another_version_is_not_called(without_server: Machine) -> None:
    with listening() as listener, lock_held(without_server):
        port = listener.getsockname()[1]
        write_state(without_server, ServerState(port=port, token="t", pid=7, build="b"))
        found, [problem] = without_server.find()
        assert found is None
        assert "pid 7) is not used: it has another version" in problem
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_server_that_does_not_answer_is_not_used(
    machine: Machine, without_server: Machine
) -> None:
    with listening() as listener, lock_held(without_server):
        port = listener.getsockname()[1]
        write_state(without_server, msgspec.structs.replace(machine.state(), port=port))
        found, [problem] = without_server.find()
    assert found is None
    assert "it does not answer" in problem


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a":' + b"[" * 5000, b"\xff", b"x" * 1_000_000])
def test_an_invalid_state_file_is_not_used(without_server: Machine, content: bytes) -> None:
    without_server.state_file.touch(mode=0o600)
    without_server.state_file.write_bytes(content)
    with lock_held(without_server):
        assert without_server.find() == (None, [])


def test_a_cache_directory_of_others_gets_no_server(without_server: Machine) -> None:
    without_server.state_file.parent.chmod(0o755)
    done = without_server.run("serve")
    assert "no private cache directory" in done.stderr
    assert done.returncode != 0
