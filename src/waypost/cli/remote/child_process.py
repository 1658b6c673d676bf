"""A command as a child process: input, bounded output, and an end in any case.

Rule 1  No shell: the command is a list of arguments, and the input goes to stdin.
Rule 2  The command is the leader of a process group of its own. When it ends, or has to, the whole
        group does: SIGTERM first, SIGKILL after `GRACE_S`.
Rule 3  Its stderr is passed on as it is, and the last part of it kept for the error.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, cast

import msgspec
import typer

from waypost.policy.bounds import payload_max_bytes

GRACE_S = 5.0
DRAIN_S = 1.0
"""How long output is read after the end of the command: a process that left its group may still
have it open."""

OUTPUT_MAX_BYTES = payload_max_bytes
ERRORS_KEPT_BYTES = 4096
STDERR = 2

Stdout = Literal["inherited", "captured", "stderr"]


class Ended(msgspec.Struct, frozen=True):
    """How a command ended. `exit_code` is None if it was ended or never began; see `problem`.

    `last_words` is the last line of its stderr that is not empty.
    """

    exit_code: int | None
    output: bytes = b""
    last_words: str = ""
    problem: str = ""


async def run(
    command: Sequence[str],
    given: bytes,
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    stdout: Stdout = "inherited",
) -> Ended:
    """Run a command with `given` on stdin; return how it ended. If cancelled, end it first."""
    targets = {"inherited": None, "captured": PIPE, "stderr": _stderr()}
    try:
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            _Child,
            *command,
            stdin=PIPE,
            stdout=targets[stdout],
            stderr=PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        return Ended(None, problem=f"cannot start {command[0]}: {reason}")
    try:
        return await child.finish(transport, given, timeout_s)
    finally:
        transport.close()


class _Child(asyncio.SubprocessProtocol):
    """A running command, and what it has written.

    A protocol, because `Process.wait` waits for everything that has the output open, too.
    """

    def __init__(self) -> None:
        self._output = bytearray()
        self._errors = bytearray()
        self._problem = ""
        self._pid = 0
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()

    async def finish(
        self, transport: asyncio.SubprocessTransport, given: bytes, timeout_s: float
    ) -> Ended:
        """Wait for the end of the command, and of its group."""
        self._pid = transport.get_pid()
        stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        stdin.write(given)  # it may end, or close stdin, without reading
        stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._exited.wait()
        except TimeoutError:
            self._problem = self._problem or f"timed out after {timeout_s:g} s"
        finally:
            await self._end()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._closed.wait()
        code = None if self._problem else transport.get_returncode()
        return Ended(code, bytes(self._output), _last_line(self._errors), self._problem)

    async def _end(self) -> None:
        """End the command, if it runs, and what is left of its group."""
        try:
            if not self._exited.is_set():
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_S):
                        await self._exited.wait()
        finally:
            self._signal(signal.SIGKILL)
        await self._exited.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on stderr, and keep a bounded part of what was written."""
        if fd == STDERR:
            typer.echo(data, err=True, nl=False)
            self._errors += data
            del self._errors[:-ERRORS_KEPT_BYTES]
        elif not self._problem:
            self._output += data
            if len(self._output) > OUTPUT_MAX_BYTES:
                self._problem = f"more than {OUTPUT_MAX_BYTES:,} bytes of output"
                self._output.clear()
                self._signal(signal.SIGKILL)

    def process_exited(self) -> None:
        """Note that the command itself has ended."""
        self._exited.set()

    def connection_lost(self, _: Exception | None) -> None:
        """Note that all output was read."""
        self._closed.set()


def _last_line(errors: bytearray) -> str:
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError):  # replaced by something that is no file
        return DEVNULL
