"""Limits that are switched off, replayed over history by the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import UNSET

OFF = {"maxEnvelopes": 18446744073709551615, "maxBytes": 18446744073709551615}


def waypost(*arguments: str) -> Any:
    """Return the JSON output of a command in a process of its own."""
    command = [sys.executable, "-m", "waypost", *arguments, "--json"]
    environment = {**os.environ, **UNSET}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.spark
@pytest.mark.slow
def test_tiers_that_are_switched_off_reject_nothing_in_a_backtest(tmp_path: Path) -> None:
    trace = tmp_path / "mails.txt"
    trace.write_text("src dst time\n" + "".join(f"1 2 {1_000_000 + n}\n" for n in range(40)))
    lake = ("--lake", str(tmp_path / "lake"))
    waypost("pipeline", "import-trace", str(trace), *lake)
    settings = tmp_path / "off.json"
    settings.write_text(json.dumps({"qos": {"enabled": True, "tier1": OFF, "tier2": OFF}}))
    result = waypost("pipeline", "backtest", "--settings", str(settings), *lake)
    assert result["rejected"] == {}, "by default, twenty of them"
