"""A Spark server that stays: jobs that find it neither start Java nor compile its code again.

It is a Spark Connect server in the process of `waypost pipeline serve`. In the cache directory:

    server.json     port, token, pid and build of the server, for the owner only, while jobs may
                    join it: not before Spark has started, nor while it stops
    server.lock     locked by the server as long as it lives: without the lock, `server.json` is old
    server.jobs     locked by each job that uses the server

Rule 1  It listens on loopback and answers only those who know its token. The token is in no
        command line. A job sends it to no other process: while the lock is held, the port is the
        server's.
Rule 2  It ends only while no job uses it. A job that finds the state has joined before.
Rule 3  A job uses a server of the same Java, PySpark, Python and Waypost, or none.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import IO

import msgspec
from pyspark import SparkContext

from waypost.files import read_secret
from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.files import replace_file
from waypost.pipeline.spark.cache import cache_directory, require_cache_directory, spark_build
from waypost.pipeline.spark.connection import is_answering
from waypost.pipeline.spark.java import require_java
from waypost.pipeline.spark.session import (
    SAME_MACHINE,
    ServerState,
    SparkChoice,
    has_local_paths,
    spark_session,
)

_STATE, _LOCK, _JOBS = "server.json", "server.lock", "server.jobs"
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_POLL_S = 0.5
_LOCK_WAIT_S = 2.0


def serve(
    environment: MutableMapping[str, str],
    idle_s: float,
    stop: threading.Event,
    on_ready: Callable[[ServerState], None],
) -> bool:
    """Run a server until `stop` is set, or until no job has used it for `idle_s` seconds.

    Returns whether it was idle. Raises `SparkUnavailable` if one is running already, or if it
    cannot be started.
    """
    directory = require_cache_directory(environment)
    state = directory / _STATE
    with _held_by_server(directory), contextlib.ExitStack() as stack:
        # That of a server that was killed: with the lock held, a job would call its port.
        state.unlink(missing_ok=True)
        token, port = secrets.token_urlsafe(32), _free_port()
        environment[_TOKEN] = token
        try:
            session = stack.enter_context(spark_session(_choice(port), environment))
        finally:
            del environment[_TOKEN]
        stack.callback(state.unlink, missing_ok=True)  # before Spark stops
        running = ServerState(
            port=port,
            token=token,
            pid=os.getpid(),
            build=_build(environment),
            local_paths=has_local_paths(session),
        )
        replace_file(state, msgspec.json.encode(running))
        on_ready(running)
        return _wait(directory, idle_s, stop)


@contextlib.contextmanager
def find_server(
    environment: Mapping[str, str], on_unusable: Callable[[str], None]
) -> Iterator[ServerState | None]:
    """Yield a running server that stays for the whole block; None if there is none to use.

    A server that runs but cannot be used is described to `on_unusable`.
    """
    directory = cache_directory(environment)
    if directory is None or not (directory / _STATE).exists():
        yield None
        return
    with _open(directory / _JOBS) as jobs:
        fcntl.flock(jobs, fcntl.LOCK_SH)  # the server takes it for a moment only
        found = _read(directory)
        problem = "" if found is None else _problem(found, environment)
        if found is not None and problem:
            on_unusable(f"the Spark server (pid {found.pid}) is not used: {problem}")
        if found is None or problem:
            fcntl.flock(jobs, fcntl.LOCK_UN)
        yield None if problem else found


def _choice(port: int) -> SparkChoice:
    return SparkChoice(
        conf={
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.port.maxRetries": "0",
            # What a killed job has started ends soon after it.
            "spark.connect.execute.manager.detachedTimeout": "20s",
            "spark.connect.execute.manager.maintenanceInterval": "5s",
            SAME_MACHINE: "true",
        }
    )


def _wait(directory: Path, idle_s: float, stop: threading.Event) -> bool:
    gateway = SparkContext._gateway
    assert gateway is not None
    used_s = time.monotonic()
    with _open(directory / _JOBS) as jobs:
        while not stop.wait(_POLL_S):
            if gateway.proc.poll() is not None:
                raise SparkUnavailable("the Spark server ended: Java exited")
            try:
                fcntl.flock(jobs, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                used_s = time.monotonic()
                continue
            if time.monotonic() - used_s >= idle_s:
                (directory / _STATE).unlink(missing_ok=True)  # while no job can join
                return True
            fcntl.flock(jobs, fcntl.LOCK_UN)
    return False


def _read(directory: Path) -> ServerState | None:
    """Return the state that a living server has written."""
    with _open(directory / _LOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # no process holds it
        except BlockingIOError:
            pass
    try:
        return msgspec.json.decode(read_secret(directory / _STATE), type=ServerState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _problem(found: ServerState, environment: Mapping[str, str]) -> str:
    if found.build != _build(environment):
        return "it has another version of Java, PySpark, Python or Waypost; start it again"
    return "" if is_answering(found) else "it does not answer"


@contextlib.contextmanager
def _held_by_server(directory: Path) -> Iterator[None]:
    deadline_s = time.monotonic() + _LOCK_WAIT_S  # a job that looks for a server locks it briefly
    with _open(directory / _LOCK) as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise SparkUnavailable("a Spark server is running already") from None
                time.sleep(0.05)
        yield


def _open(path: Path) -> IO[str]:
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _build(environment: Mapping[str, str]) -> str:
    """Return a short text that differs between versions of anything that runs a job."""
    root = Path(__file__).parents[2]  # Waypost
    files = sorted(
        (str(path), found.st_size, found.st_mtime_ns)
        for path in root.rglob("*.py")
        for found in (path.stat(),)
    )
    spark = spark_build(require_java(environment), environment)
    facts = (spark, sys.executable, sys.version, files)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
