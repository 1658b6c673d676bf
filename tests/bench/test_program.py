"""One results file for each run; a benchmark that fails is recorded, and the next one runs."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as whole_run
from bench import program, report
from bench.peers import PeerError
from bench.program import Benchmark, Found, Log
from bench.suite import BENCHMARKS


def options(tmp_path: Path, **others: Any) -> argparse.Namespace:
    given = {"quick": False, "json": True, "data_dir": tmp_path, "output": tmp_path / "one.json"}
    return argparse.Namespace(**{**given, **others})


def benchmark(name: str, found: Found | Exception) -> Benchmark:
    async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
        log("measuring")
        if isinstance(found, Exception):
            raise found
        return found

    return Benchmark(name, name, measure, lambda found: [], ())


def test_every_benchmark_is_in_the_one_results_file(tmp_path: Path) -> None:
    given = options(tmp_path)
    both = [benchmark("first", {"figure": 1}), benchmark("second", {"figure": 2})]
    program.run(both, given, lambda _: given)
    results = program.read_results(given.output)
    assert {name: one["figure"] for name, one in results["benchmarks"].items()} == {
        "first": 1,
        "second": 2,
    }
    assert results["machine"]["cores"] > 0


def test_a_benchmark_that_fails_is_recorded_and_the_next_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options(tmp_path)
    both = [benchmark("first", PeerError("no server")), benchmark("second", {"figure": 2})]
    with pytest.raises(SystemExit) as ended:
        program.run(both, given, lambda _: given)
    assert ended.value.code == 1
    results = program.read_results(given.output)
    assert program.failed(results) == {"first": "PeerError: no server"}
    assert results["benchmarks"]["second"]["figure"] == 2
    assert "first: failed in" in capsys.readouterr().err


def test_nothing_is_left_in_the_data_directory(tmp_path: Path) -> None:
    given = options(tmp_path)
    program.run([benchmark("first", {})], given, lambda _: given)
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


@pytest.mark.parametrize("content", ["", "[]", '{"format": 0}', '"text"'])
def test_another_file_is_no_results_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(SystemExit, match="no results file"):
        program.read_results(path)


def test_peers_that_could_not_be_had_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = program.new_results(quick=True)
    reason = "not installed, apt-get install rabbitmq-server"
    found = {"missing": {"RabbitMQ": reason}, "failure": "stopped"}
    results["benchmarks"] = {"core": found, "network": found}
    report.show(results)
    assert capsys.readouterr().out.count(f"RabbitMQ: {reason}") == 1


def test_own_arguments_override_those_of_a_quick_run() -> None:
    [core] = [one for one in BENCHMARKS if one.name == "core"]
    assert core.options([]).runs == 5
    assert core.options(["--quick"]).runs == 3
    assert core.options(["--quick", "--runs", "9"]).runs == 9


@pytest.mark.parametrize("one", BENCHMARKS, ids=lambda one: one.name)
def test_a_quick_run_is_smaller_than_a_full_one(one: Benchmark) -> None:
    assert vars(one.options([], quick=True)) != vars(one.options([]))


def test_a_quick_run_leaves_out_what_starts_for_longer_than_it_measures() -> None:
    everything = [one.name for one in BENCHMARKS]
    assert whole_run.parse([]).only == everything
    left_out = set(everything) - set(whole_run.parse(["--quick"]).only)
    assert left_out == {"cluster", "stream"}
    assert whole_run.parse(["--quick", "--only", "cluster"]).only == ["cluster"]
