"""`--quick` selects the tests that need no Spark, no browser and no other process."""

import asyncio
import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# One test without a marker, and one with each.
QUICK = "tests/test_markers.py::test_an_unmarked_test_cannot_start_a_process"
PROCESS = "tests/test_markers.py::test_quick_leaves_out_tests_with_a_marker"
SPARK = "tests/pipeline/test_lake.py::"
BROWSER = "tests/dashboard/test_views.py::"
UNMARKED = "an unmarked test starts a process"


def test_an_unmarked_test_cannot_start_a_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=UNMARKED):
        subprocess.run([sys.executable, "--version"], check=True)
    with pytest.raises(pytest.fail.Exception, match=UNMARKED):
        multiprocessing.get_context("spawn").Process(target=print).start()


async def test_an_unmarked_coroutine_cannot_start_a_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=UNMARKED):
        await asyncio.create_subprocess_exec(sys.executable, "--version")


@pytest.mark.process
def test_quick_leaves_out_tests_with_a_marker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quick", "-q"]
        + [str(ROOT / test.partition("::")[0]) for test in (QUICK, SPARK, BROWSER)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert QUICK in done.stdout
    for marked in (PROCESS, SPARK, BROWSER):
        assert marked not in done.stdout
