"""The interface between a benchmark and a broker, and the server process of a peer.

Rule 1  A peer counts confirmed messages only. A run with a missing confirmation raises; it never
        returns a figure.
Rule 2  A server and its directory disappear with the benchmark, however that ends: a return, an
        exception, Ctrl-C, SIGTERM or SIGKILL.
Rule 3  Server files are under the directory named by the caller, so that every peer pays for the
        same filesystem's fsync.
"""

import asyncio
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, TypeVar

STARTUP_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
LOG_TAIL_CHARACTERS = 2000

# The shell holds the read end of a pipe whose only write end is in this process. `read` returns
# when this process closes it or dies, so one path covers an orderly stop and a killed benchmark.
# The data is deleted, so the server need not shut down in order.
GUARD_SCRIPT = """
directory=$1; shift
"$@" >"$directory/server.log" 2>&1 </dev/null &
server=$!
echo "$server"
read -r _
kill -9 "$server" 2>/dev/null
wait "$server" 2>/dev/null
rm -rf -- "$directory"
"""


class Contestant(Protocol):
    """A broker or queue under measurement, started with an empty store and stopped at the end."""

    @property
    def name(self) -> str:
        """The name in tables and JSON; different for two settings of one broker."""
        ...

    @property
    def directory(self) -> Path:
        """The directory that holds everything it stores."""
        ...

    def available(self) -> str | None:
        """Return None if the peer can run here, else what is missing and how to get it."""
        ...

    async def start(self, data_dir: Path) -> None:
        """Start with an empty store on `data_dir`'s filesystem; clean up on failure."""
        ...

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of its server so far; 0 if it runs in this process."""
        ...

    async def stop(self) -> None:
        """Stop the server and remove its files. Safe to call twice, or without a start."""
        ...


class Peer(Contestant, Protocol):
    """A broker that publishes and consumes. Figures are wall-clock seconds, confirmed only."""

    async def publish(self, count: int, in_flight: int) -> float:
        """Return the seconds to publish `count` messages, at most `in_flight` unconfirmed."""
        ...

    async def consume(self, count: int, in_flight: int) -> float:
        """Return the seconds to read and acknowledge `count` messages, `in_flight` at a time."""
        ...


class PeerError(Exception):
    """A peer did not start, or did not confirm a message."""


def require(condition: bool, problem: str) -> None:
    """Raise `PeerError(problem)` unless `condition`; unlike `assert`, also under -O."""
    if not condition:
        raise PeerError(problem)


C = TypeVar("C", bound=Contestant)


async def start_available(
    peers: Iterable[C], data_dir: Path, stack: AsyncExitStack
) -> tuple[list[C], dict[str, str]]:
    """Start the peers that can run here, and stop them with `stack`.

    Return them, and the reasons of the others by name. A Waypost that does not start is an error.
    """
    started: list[C] = []
    missing: dict[str, str] = {}
    for peer in peers:
        reason = peer.available()
        if reason is None:
            try:
                await peer.start(data_dir)
            except (PeerError, OSError) as problem:
                if peer.name.startswith("Waypost"):
                    raise
                reason = f"did not start: {problem}"
        if reason is None:
            stack.push_async_callback(peer.stop)
            started.append(peer)
        else:
            missing[peer.name] = reason
    return started, missing


def batch_sizes(count: int, batch: int) -> list[int]:
    """Split `count` into full batches and a smaller last one, if it does not divide."""
    full, rest = divmod(count, batch)
    return [batch] * full + ([rest] if rest else [])


class ServerProcess:
    """A server in a directory of its own; both disappear with this process."""

    def __init__(self, label: str, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=data_dir.resolve()))
        self.pid: int | None = None
        self._guard: subprocess.Popen[str] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run the command inside the directory, in a session that Ctrl-C does not reach.

        `environment` is added to that of this process.
        """
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD_SCRIPT, "guard", str(self.directory), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            text=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

    async def wait_until(self, ready: Callable[[], bool]) -> None:
        """Poll until the server is ready; `PeerError` with the end of its log after a minute."""
        deadline = time.monotonic() + STARTUP_SECONDS_MAX
        while not ready():
            if time.monotonic() > deadline:
                log = (self.directory / "server.log").read_text(errors="replace")
                raise PeerError(f"server did not start:\n{log[-LOG_TAIL_CHARACTERS:]}")
            await asyncio.sleep(POLL_SECONDS)

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the server."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        require(found is not None, "no VmRSS: memory is read from /proc, on Linux")
        return int(found[1]) * 1024 if found else 0

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server so far, in user and system mode.

        Read from the clock of the process, to the nanosecond: /proc/PID/stat counts in ticks of
        10 ms, of which a quick server may use none.
        """
        require(self.pid is not None, "the server is not running")
        clock = ctypes.c_int()
        failed = ctypes.CDLL(None).clock_getcpuclockid(self.pid, ctypes.byref(clock))
        require(failed == 0, f"no CPU clock of process {self.pid}")
        return time.clock_gettime(clock.value)

    def stop(self) -> None:
        """Kill the server and remove its directory; a second call does nothing."""
        guard, self._guard, self.pid = self._guard, None, None
        if guard is not None:
            # Closing the pipe stops the server.
            guard.communicate(timeout=STOP_SECONDS_MAX)
        shutil.rmtree(self.directory, ignore_errors=True)


class ServerPeer:
    """What peers with one server process have in common."""

    label = ""
    _server: ServerProcess | None = None

    @property
    def directory(self) -> Path:
        """The directory of the server."""
        return self.running().directory

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of the server so far."""
        return self.running().cpu_seconds

    def running(self) -> ServerProcess:
        """Return the server, or raise `PeerError`."""
        if self._server is None:
            raise PeerError(f"{self.label} was not started")
        return self._server
