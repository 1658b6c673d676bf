"""Jobs of the pipeline that the operator starts over HTTP: each a process of the command line.

Rule 1  One job at a time, with a time limit. Of its output, the end is kept.
Rule 2  Nothing of Spark is imported here. What a job lacks, it says itself: its output names the
        package or the Java to install.
Rule 3  A Spark server is kept for the next job. It ends after some idle minutes, or with the relay.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

OUTPUT_MAX_BYTES = 8 * 1024
JOB_TIMEOUT_S = 30 * 60.0
SERVER_START_S = 120.0
SERVER_IDLE = "10m"
_READY = b"Spark is ready"

Kind = Literal["report", "backtest"]
Steps = Sequence[tuple[str, Sequence[str]]]
"""What a job does, in order: a description, and the arguments of a command."""


class PipelineJob(msgspec.Struct, kw_only=True):
    """A job of the pipeline. `output` is the end of what its commands printed.

    `started_us` and `ended_us` are Unix times; a running job has no end.
    """

    kind: Kind
    state: Literal["running", "done", "failed"] = "running"
    step: str = ""
    started_us: int
    ended_us: int | None = None
    output: str = ""


class PipelineJobs:
    """The jobs of one relay. `command` runs the command line of Waypost; None is no jobs.

    `journal` is the data directory; the lake is inside it unless another one is given.
    """

    def __init__(
        self,
        command: Sequence[str] | None,
        journal: Path,
        lake: Path | None,
        now_us: Callable[[], int],
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        self._command = command
        self.lake = lake or Path(journal) / "lake"
        self._lake = ("--lake", str(self.lake.absolute()))
        self._ingest = ("--journal", str(Path(journal).absolute()), *self._lake)
        self._now_us = now_us
        self._timeout_s = timeout_s
        self._running: asyncio.Task[None] | None = None
        self._spark_server: _SparkServer | None = None
        self.last: PipelineJob | None = None
        """The running job, or the one that ended last."""

    @property
    def can_start(self) -> bool:
        """Whether this relay starts jobs at all."""
        return self._command is not None

    @property
    def is_running(self) -> bool:
        """Whether a job is running."""
        return self._running is not None and not self._running.done()

    def refresh_report(self) -> PipelineJob:
        """Start a job that reads the journal and writes the report."""
        return self._start("report", [("writing the report", ("run", *self._ingest))])

    def backtest(self, settings: bytes) -> PipelineJob:
        """Start a job that replays the journal under `settings`, a `config.json`."""
        steps = [
            ("reading the journal", ("ingest", *self._ingest)),
            ("replaying every decision", ("backtest", *self._lake)),
        ]
        return self._start("backtest", steps, settings)

    async def close(self) -> None:
        """Kill the running job, and end the Spark server."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._spark_server is not None:
            await self._spark_server.end()

    def _start(self, kind: Kind, steps: Steps, settings: bytes | None = None) -> PipelineJob:
        assert self._command is not None
        assert not self.is_running
        job = self.last = PipelineJob(kind=kind, started_us=self._now_us())
        self._running = asyncio.create_task(self._run(job, self._command, steps, settings))
        return job

    async def _run(
        self, job: PipelineJob, command: Sequence[str], steps: Steps, settings: bytes | None
    ) -> None:
        succeeded = False
        try:
            async with asyncio.timeout(self._timeout_s):
                job.step = "starting Spark"
                if self._spark_server is None or self._spark_server.has_ended:
                    self._spark_server = await _start_spark_server(command)
                with _settings_file(settings) as options:
                    succeeded = await self._run_steps(job, command, steps, options)
        except TimeoutError:
            job.output += f"\nstopped after {self._timeout_s:,.0f} s: run it from a terminal"
        except OSError as problem:
            job.output += f"\n{command[0]} cannot be run: {problem.strerror}"
        finally:
            job.state = "done" if succeeded else "failed"
            job.ended_us = self._now_us()

    async def _run_steps(
        self, job: PipelineJob, command: Sequence[str], steps: Steps, last_options: Sequence[str]
    ) -> bool:
        """Run the steps until one fails; return whether all succeeded."""
        for number, (job.step, arguments) in enumerate(steps, start=1):
            more = last_options if number == len(steps) else ()
            process = await _run_command([*command, "pipeline", *arguments, *more])
            try:
                await _keep_output(process, job)
                if await process.wait() != 0:
                    return False
            finally:
                await _kill(process)
        return True


class _SparkServer:
    """`waypost pipeline serve` as a process; `ready` is set when jobs can use it, or never will."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def end(self) -> None:
        await _kill(self._process)
        await self._reading

    async def _read(self) -> None:
        """Read what it prints, so that it never waits for a reader."""
        assert self._process.stdout is not None
        seen = b""
        while chunk := await self._process.stdout.read(OUTPUT_MAX_BYTES):
            seen = (seen + chunk)[-OUTPUT_MAX_BYTES:]
            if _READY in seen:
                self.ready.set()
        self.ready.set()
        await self._process.wait()


async def _start_spark_server(command: Sequence[str]) -> _SparkServer:
    """Start a Spark server and wait for it; the user may have one already, and this one ends."""
    arguments = [*command, "pipeline", "serve", "--idle", SERVER_IDLE]
    server = _SparkServer(await _run_command(arguments))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SERVER_START_S):
            await server.ready.wait()
    return server


async def _run_command(arguments: Sequence[str]) -> asyncio.subprocess.Process:
    """Start a process whose output is read, in a group of its own: Java is killed with it."""
    return await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _keep_output(process: asyncio.subprocess.Process, job: PipelineJob) -> None:
    """Keep the end of what a process prints, until it closes its output."""
    assert process.stdout is not None
    tail = b""
    while chunk := await process.stdout.read(OUTPUT_MAX_BYTES):
        tail = (tail + chunk)[-OUTPUT_MAX_BYTES:]
        job.output = tail.decode(errors="replace")


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


@contextlib.contextmanager
def _settings_file(settings: bytes | None) -> Iterator[Sequence[str]]:
    """Yield the options that name a file with `settings`, which only its owner can read."""
    if settings is None:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="waypost-backtest-") as directory:
        file = Path(directory, "config.json")
        file.write_bytes(settings)
        yield ("--settings", str(file))
