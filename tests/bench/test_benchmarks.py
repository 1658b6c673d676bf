"""Every benchmark runs, in a tiny size, and its results can be shown. No figure is judged."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.marks import MARKS
from bench.program import read_results
from bench.suite import BENCHMARKS

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600
RATES = ("--runs", "2", "--seconds", "0.02", "--warm-up", "10", "--fill", "100")
SHORT = ("--runs", "1", "--seconds", "0.02", "--warm-up", "10")
# A few hundred events: compiling a query takes longer than interpreting it.
QUICK_SPARK = (
    "--conf=spark.sql.codegen.wholeStage=false",
    "--conf=spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf=spark.sql.adaptive.enabled=false",
    "--conf=spark.sql.shuffle.partitions=2",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
)
TINY = {
    "core": (*RATES, "--only", "waypost"),
    "network": RATES,
    "latency": ("--runs", "1", "--seconds", "0.1"),
    "cluster": (*SHORT, "--idle", "0.1", "--partitions", "1,2"),
    "growth": ("--runs", "1", "--seconds", "0.02", "--large", "200"),
    "ids": ("--runs", "1", "--seconds", "0.02", "--ids", "500"),
    "idle": ("--runs", "1", "--endpoints", "500"),
    "agents": ("--agents", "20"),
    "opening": ("--runs", "1", "--events", "300"),
    "steady": ("--minutes", "0.01"),
    "flood": ("--seconds", "1", "--rest", "0", "--crowd", "sender"),
    "pipeline": ("--events", "10k", "--only", "ingest"),
    # A pause that is longer than a sample takes: two builds, the first one and the last.
    "stream": ("--minutes", "0.01", "--rate", "300", "--build-every", "5", *QUICK_SPARK),
}
MARKERS = {
    **dict.fromkeys(("pipeline", "stream"), (pytest.mark.spark, pytest.mark.slow)),
    "cluster": (pytest.mark.slow,),
}
NEEDS_PEERS = {"core", "network", "latency"}


def run(tmp_path: Path, module: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run a benchmark as its command does; return the results file and what was printed."""
    output = tmp_path / "results.json"
    places = ("--data-dir", str(tmp_path), "--output", str(output))
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments, *places],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_results(output), ended.stdout


def test_every_benchmark_is_tried() -> None:
    assert set(TINY) == {one.name for one in BENCHMARKS}


@pytest.mark.process
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKERS.get(name, ())) for name in TINY])
def test_a_benchmark_runs_and_its_results_are_shown(name: str, tmp_path: Path) -> None:
    results, printed = run(tmp_path, f"bench.{name}", *TINY[name])
    [(ran, found)] = results["benchmarks"].items()
    assert ran == name
    [benchmark] = [one for one in BENCHMARKS if one.name == name]
    for table in benchmark.tables(found):
        assert table.title.split(",")[0][:30] in printed
        assert {len(row) for row in table.rows} <= {len(table.headings)}
    of_this = [mark for mark in MARKS if mark.benchmark == name]
    if name not in NEEDS_PEERS and of_this:
        assert any(mark.measured(results) for mark in of_this)


@pytest.mark.process
def test_one_command_runs_several_into_one_results_file(tmp_path: Path) -> None:
    results, printed = run(tmp_path, "bench", "--quick", "--only", "opening,idle")
    assert results["quick"]
    assert list(results["benchmarks"]) == ["idle", "opening"]
    assert "opening with a million events" in printed
    assert "smaller run" in printed


@pytest.mark.process
def test_an_unknown_benchmark_is_an_error() -> None:
    command = [sys.executable, "-m", "bench", "--only", "nothing"]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 2
    assert "no benchmark 'nothing'; choose from core, network" in ended.stderr
