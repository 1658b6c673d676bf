"""`./run demo`, from its first line to Ctrl-C: its output, and the screen in docs/demo.md."""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_readme import ROOT, blocks, masked

PATIENCE_S = 600
CONTINUES = "Traffic continues"


def run_demo(directory: Path) -> tuple[str, str, int]:
    """Run the demo until its endless traffic, then press Ctrl-C: stdout, stderr, exit code."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--keep", "--data-dir", "data"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    patience = threading.Timer(PATIENCE_S, demo.kill)
    patience.start()
    try:
        printed = ""
        for line in demo.stdout:
            printed += line
            if line.startswith(CONTINUES):
                break
        if found := re.search(r"^Dashboard +(\S+)$", printed, re.MULTILINE):
            urllib.request.urlopen(f"{found[1]}healthz", timeout=60).close()
        demo.send_signal(signal.SIGINT)
        rest, problems = demo.communicate()
    finally:
        patience.cancel()
        demo.kill()
    return printed + rest, problems, demo.returncode


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_prints_the_screen_in_the_docs_and_loses_nothing(tmp_path: Path) -> None:
    printed, problems, exit_code = run_demo(tmp_path)
    assert (problems, exit_code) == ("", 0)
    lines = printed.splitlines()
    shown = blocks("docs/demo.md", "text")[0].splitlines()
    assert {masked(line) for line in shown} - {masked(line) for line in lines} == set()
    kept = re.search(r"Nothing is lost: ([\d,]+) confirmed .*, ([\d,]+) found", printed)
    assert kept is not None, printed
    assert kept[1] == kept[2] != "0"
    assert re.search(r"Replayed by Spark: 0 of [\d,]+ decisions differ", printed), printed
    assert [line for line in lines if len(line) > 100 and str(tmp_path) not in line] == []
    assert (tmp_path / "data" / "lake" / "report.html").stat().st_size > 10_000
    assert "Stopped" in lines[-1]


@pytest.mark.slow
@pytest.mark.process
def test_the_demo_of_a_cluster_loses_nothing_when_a_node_is_killed() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--cluster"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.stderr, ended.returncode) == ("", 0), ended.stdout
    printed = {without_names(line) for line in ended.stdout.splitlines()}
    shown = {without_names(line) for line in blocks("docs/demo.md", "text")[1].splitlines()}
    assert shown - printed == set()
    kept = re.search(r"Nothing is lost: ([\d,]+) messages confirmed .*, ([\d,]+) rec", ended.stdout)
    assert kept is not None
    assert kept[1] == kept[2] != "0"


def without_names(line: str) -> str:
    """Return a line without numbers, and without the team of an agent."""
    return re.sub(r"agent\.\w+", "agent", masked(line))
