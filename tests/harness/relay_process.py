"""A relay served by a process of its own: for tests of the command line and of the dashboard."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ENDS_WITHIN_S = 60.0
_URL = re.compile(r"https?://\S+")


class RelayProcess:
    """A Python process that prints the URL of its relay; `output` is its stdout so far.

    `ready` is the beginning of the last line that it prints before it serves. Its stderr goes to
    the file `log_path`.
    """

    def __init__(
        self,
        arguments: list[str],
        log_path: Path,
        *,
        ready: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.output = ""
        try:
            self.url = self._wait_until(ready)
        except BaseException:
            self.end(signal.SIGKILL)  # nobody else knows it
            raise

    def _wait_until(self, ready: str) -> str:
        """Read its output up to the line that begins with `ready`; return the URL in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if line.startswith(ready):
                break
        found = _URL.search(self.output)
        assert found is not None, self.log
        return found[0]

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(how)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end of the process; kill it if it does not end in time."""
        try:
            return self.process.wait(ENDS_WITHIN_S)
        finally:
            self.process.kill()
            self.process.communicate()
