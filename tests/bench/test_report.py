"""Tables and plots are drawn from a results file, into the page or on the terminal."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import __main__ as whole_run
from bench import plots, report
from bench.program import new_results
from bench.suite import BENCHMARKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / report.PAGE).read_text(encoding="utf-8")


def results(*, quick: bool = False) -> dict[str, Any]:
    samples = [
        {"at_s": float(at_s), "memory_mb": 80.0, "p50_ms": 5.0, "p99_ms": 20.0}
        for at_s in range(1, 21)
    ]
    return {
        **new_results(quick=quick),
        "benchmarks": {
            "idle": {"endpoints": 100_000, "runs_kb": [1.4, 1.6], "endpoint_kb": 1.5},
            "steady": {"rate": 100.0, "visits": 3, "samples": samples},
        },
    }


def test_the_page_has_a_block_for_every_benchmark() -> None:
    names = re.findall(r"<!-- results: (\w+) -->", PAGE)
    assert {"machine", "marks", *(one.name for one in BENCHMARKS)} == set(names)
    assert len(names) == len(set(names)) == PAGE.count(report.END)


def commands() -> list[list[str]]:
    """Return the arguments of every `./run bench` on the page."""
    lines = re.findall(r"^\./run bench(.*)$", PAGE, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_on_the_page_is_valid(words: list[str]) -> None:
    if not words or words[0].startswith("-"):
        assert whole_run.parse(words).only
    elif words[0] != "report":
        [benchmark] = [one for one in BENCHMARKS if one.name == words[0]]
        benchmark.options(words[1:])


def test_only_the_blocks_of_this_run_are_replaced() -> None:
    page = "a\n<!-- results: idle -->\nold\n<!-- end of results -->\nb\n"
    page += "<!-- results: core -->\nkept\n<!-- end of results -->\n"
    drawn = report.replace_blocks(page, report.blocks(results()))
    assert "old" not in drawn
    assert "| 100,000 | 1.50 (1.40–1.60) |" in drawn
    assert "kept" in drawn
    assert drawn.startswith("a\n")


def test_a_page_drawn_twice_is_the_same() -> None:
    blocks = report.blocks(results())
    once = report.replace_blocks(PAGE, blocks)
    assert report.replace_blocks(once, blocks) == once


def test_plots_are_drawings() -> None:
    drawn = plots.plots(results())
    assert set(drawn) == {"bench-marks", "bench-steady"}
    for svg in drawn.values():
        assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "memory of an idle endpoint" in drawn["bench-marks"]


@pytest.mark.process
def test_a_quick_run_is_not_drawn_into_the_page(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(results(quick=True)))
    command = [sys.executable, "-m", "bench.report", str(path), "--docs"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "a quick run is too rough" in ended.stderr
    assert (ROOT / report.PAGE).read_text(encoding="utf-8") == PAGE
