"""Marks are read from results, with their outcome."""

from typing import Any

import pytest

from bench import core, latency, marks, network
from bench.marks import MARKS, Mark, marks_table
from bench.program import new_results
from bench.suite import BENCHMARKS


def results(**benchmarks: dict[str, Any]) -> dict[str, Any]:
    return {**new_results(quick=False), "benchmarks": benchmarks}


def outcome(found: dict[str, Any], name: str) -> tuple[str, str, str]:
    [row] = [row for row in marks_table(found).rows if row[0] == name]
    _, measured, wanted, reached = row
    return measured, wanted, reached


def rates(**by_peer: list[float]) -> dict[str, Any]:
    named = {"own": marks.JOURNAL, "redis": marks.REDIS}
    return {"publish": {"100": {named[name]: runs for name, runs in by_peer.items()}}}


PUBLISH = "publish, journal, 100 in flight / Redis"


def test_a_mark_compares_with_the_peer_of_the_same_run() -> None:
    found = results(core=rates(own=[120, 240, 110], redis=[100, 200, 100]))
    assert outcome(found, PUBLISH) == ("1.20 (1.10–1.20)", "at least 1.1", "yes")


def test_a_mark_that_is_not_reached_says_so() -> None:
    assert outcome(results(core=rates(own=[100], redis=[100])), PUBLISH)[2] == "NO"


def test_a_mark_without_its_peer_is_not_measured() -> None:
    found = results(core=rates(own=[100]))
    assert outcome(found, PUBLISH) == ("not measured", "at least 1.1", "–")


def test_marks_of_benchmarks_that_did_not_run_are_left_out() -> None:
    found = results(idle={"endpoints": 100_000, "endpoint_kb": 1.0})
    assert [row[0] for row in marks_table(found).rows] == ["memory of an idle endpoint"]


def test_a_smaller_run_reaches_no_mark() -> None:
    found = results(opening={"events": 1000, "behind_seconds": [0.1]})
    name = "opening with a million events behind the checkpoint"
    assert outcome(found, name) == ("0.10 s", "at most 8 s", "smaller run")


@pytest.mark.parametrize(
    ("second_half", "reached"), [(105.0, "yes"), (111.0, "NO"), (89.0, "NO"), (95.0, "yes")]
)
def test_a_load_is_steady_if_its_halves_differ_by_a_tenth_at_most(
    second_half: float, reached: str
) -> None:
    samples = [
        {"at_s": at_s, "memory_mb": 100.0 if at_s <= 300 else second_half, "p50_ms": 1.0}
        for at_s in range(5, 601, 5)
    ]
    found = results(steady={"samples": samples})
    assert outcome(found, "steady load: memory, second half / first half")[2] == reached


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.name)
def test_a_mark_has_a_bound_and_a_benchmark(mark: Mark) -> None:
    assert mark.at_least is not None or mark.at_most is not None
    assert mark.benchmark in {one.name for one in BENCHMARKS}


def test_names_of_marks_are_different() -> None:
    assert len({mark.name for mark in MARKS}) == len(MARKS)


def test_the_peers_of_marks_take_part() -> None:
    embedded = {peer.name for peer in core.contestants()}
    assert {marks.JOURNAL, marks.MANY, marks.MAILDIR, marks.REDIS, marks.NATS} <= embedded
    served = {peer.name for peer in network.contestants()}
    assert {marks.SERVED, marks.NATS, marks.NATS_DEFAULT} <= served
    assert {peer.name for peer in latency.contestants()} == {marks.SERVED, marks.NATS}


def figure(job: str, peer: str, amount: int, seconds: float) -> dict[str, Any]:
    return {"job": job, "peer": peer, "amount": amount, "seconds": seconds, "peak_bytes": 1 << 30}


def built(amount: int) -> dict[str, Any]:
    own, other = (figure("build", peer, amount, s) for peer, s in (("Waypost", 9.0), ("DuckDB", 2)))
    return results(pipeline={"figures": [own, other]})


@pytest.mark.parametrize(
    ("events", "name", "expected"),
    [
        (828_227, "build, 825 k / DuckDB", ("4.50", "at most 8", "yes")),
        (4_141_135, "build, 4 M / DuckDB", ("4.50", "at most 5", "yes")),
        (19_820_544, "build, 20 M / DuckDB", ("4.50", "at most 3.5", "NO")),
        (10_000, "build, 825 k / DuckDB", ("4.50", "at most 8", "smaller run")),
        (10_000, "build, 4 M / DuckDB", ("not measured", "at most 5", "–")),
    ],
)
def test_a_mark_of_the_pipeline_is_read_at_its_size(
    events: int, name: str, expected: tuple[str, str, str]
) -> None:
    assert outcome(built(events), name) == expected


def test_a_backtest_is_compared_with_the_sequential_replay_of_one_journal() -> None:
    job = "backtest, halved limits"
    one_journal = figure(job, "sequential replay", 300_000, 10.0)
    found = results(pipeline={"figures": [one_journal, figure(job, "Waypost", 4_000_000, 40.0)]})
    name = f"{job}, 4 M / sequential replay"
    assert outcome(found, name) == ("3.33", "at least 2.5", "yes")


def test_time_per_event_may_not_grow_with_the_lake() -> None:
    sizes = ((4_000_000, 40.0), (100_000_000, 1500.0))
    found = results(pipeline={"figures": [figure("build", "Waypost", *one) for one in sizes]})
    assert outcome(found, "build, time per event, 100 M / 4 M") == ("1.50", "at most 1", "NO")
