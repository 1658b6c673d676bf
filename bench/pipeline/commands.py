"""Whole commands of `waypost pipeline`, as a user runs them, timed with their start.

They have a cache directory of their own, so that no server or class archive of the user is found.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.pipeline.processes import Outcome, run

_PIPELINE = (sys.executable, "-m", "waypost", "pipeline")
_READY = "Spark is ready"
_STOP_TIMEOUT_S = 60


class Commands:
    """Commands that use `scratch` for their cache and their errors."""

    def __init__(self, scratch: Path) -> None:
        self._errors = scratch / "errors.txt"
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}

    def warm(self) -> None:
        """Make the class archive, if there is none yet."""
        self._timed("warm")

    def run(self, data: Path, lake: Path, *options: str) -> Outcome:
        """Run `ingest`, `build` and `report` over one journal."""
        return self._timed("run", "--journal", f"r0={data}", "--lake", str(lake), *options)

    def import_trace(self, file: Path, lake: Path) -> Outcome:
        """Import a trace into a new lake."""
        return self._timed("import-trace", str(file), "--lake", str(lake), "--no-server")

    @contextmanager
    def server(self) -> Iterator[None]:
        """Keep Spark running for other commands during the block."""
        with subprocess.Popen(
            [*_PIPELINE, "serve"], stderr=subprocess.PIPE, text=True, env=self._environment
        ) as server:
            try:
                assert server.stderr is not None
                if not any(_READY in line for line in server.stderr):
                    raise RuntimeError("`waypost pipeline serve` ended before Spark was ready")
                yield
            finally:
                server.terminate()
                server.wait(_STOP_TIMEOUT_S)

    def _timed(self, *arguments: str) -> Outcome:
        begin = time.perf_counter()
        _, peak, cpu_s = run([*_PIPELINE, *arguments], self._errors, self._environment)
        return Outcome({"seconds": time.perf_counter() - begin}, peak, cpu_s)
