"""The memory and the CPU time of a measured program, with those of its children."""

import os
import sys
from pathlib import Path

import pytest

from bench.pipeline.processes import run

pytestmark = pytest.mark.process

STARTING_CHILDREN = """
import os, time
content = os.urandom(1) * 100_000_000
for _ in range(60):
    child = os.fork()
    if not child:  # has the memory of its parent until it runs a program
        time.sleep(0.02)
        os._exit(0)
    os.waitpid(child, 0)
"""
LASTING_CHILD = """
import os, time
child = os.fork()
content = os.urandom(1) * 50_000_000
time.sleep(1)
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


def peak_mb(program: str, tmp_path: Path) -> float:
    _, peak, _ = run([sys.executable, "-c", program], tmp_path / "errors.txt", os.environ)
    return peak / 1e6


def test_the_memory_of_a_process_that_starts_programs_counts_once(tmp_path: Path) -> None:
    assert 100 < peak_mb(STARTING_CHILDREN, tmp_path) < 190


def test_the_memory_of_all_lasting_processes_is_added_up(tmp_path: Path) -> None:
    assert peak_mb(LASTING_CHILD, tmp_path) > 100
