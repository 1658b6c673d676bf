"""The measurements in their order: sizes from small to large, engines in turns.

At the largest size everything runs once; at smaller sizes twice, and the faster run counts.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.pipeline.commands import Commands
from bench.pipeline.figures import (
    BUILD_WARM,
    DUCKDB,
    IMPORT,
    POLARS,
    RUN_FRESH,
    RUN_WARM,
    SEQUENTIAL,
    WAYPOST,
    Figure,
    fastest,
    require_agreement,
)
from bench.pipeline.journals import Journal, halved, make_trace
from bench.pipeline.processes import Outcome, measure

PAYLOADS = {"64 B": 64, "4 KB": 4096, "16 KB": 16384}
"""The first and the last are compared; 4 KB is the largest payload stored in the journal line."""

_RUNS = 2
_ENGINES = {WAYPOST: "spark", DUCKDB: "duckdb", POLARS: "polars"}
Log = Callable[[str], None]


class Bench:
    """All measurements. Their files are in one directory."""

    def __init__(
        self, scratch: Path, sizes: Sequence[int], log: Log, *, alone: bool = False
    ) -> None:
        self._scratch = scratch
        self._sizes = sorted(sizes)
        self._log = log
        self._peers = [WAYPOST] if alone else list(_ENGINES)
        self._lakes: dict[int, Path] = {}

    def make_traffic(self) -> Journal:
        """Simulate the journal of all measurements except those of payloads."""
        return self._journal("make_traffic", "traffic", size=self._sizes[0])

    def ingest(self, journal: Journal) -> Iterator[Figure]:
        """Measure journals → events."""
        for size in self._sizes:
            copies = journal.copies_for_events(size)

            def run(peer: str, copies: int = copies) -> Figure:
                target = self._new_path(f"lake-{copies}" if peer == WAYPOST else "events")
                given: dict[str, Any] = {"lake" if peer == WAYPOST else "out": str(target)}
                if peer == WAYPOST:
                    given["events"] = copies * journal.events
                outcome = self._measure(
                    f"{_ENGINES[peer]}.ingest",
                    data=str(journal.data),
                    relays=_relays(copies),
                    **given,
                )
                if peer == WAYPOST:
                    self._lakes[copies] = target
                return _figure("ingest", peer, copies * journal.events, copies, outcome)

            yield from self._turns(size, f"ingest of {copies * journal.events:,} events", run)

    def build(self, journal: Journal) -> Iterator[Figure]:
        """Measure events → tables."""
        for size in self._sizes:
            copies = journal.copies_for_events(size)
            lake = self._lake(journal, copies)

            def run(peer: str, lake: Path = lake, copies: int = copies) -> Figure:
                if peer == WAYPOST:
                    built = str(self._linked(lake, "built"))
                    outcome = self._measure(
                        "spark.build", lake=built, events=copies * journal.events
                    )
                else:
                    out = str(self._new_path("tables"))
                    outcome = self._measure(f"{_ENGINES[peer]}.build", lake=str(lake), out=out)
                return _figure("build", peer, copies * journal.events, copies, outcome)

            yield from self._turns(size, f"build of {copies * journal.events:,} events", run)
        yield self._build_warm(journal)

    def _build_warm(self, journal: Journal) -> Figure:
        """Measure a build of the smallest size in a session that has done the same before."""
        copies = journal.copies_for_events(self._sizes[0])
        lakes = [self._linked(self._lake(journal, copies), name) for name in ("first", "built")]
        events = copies * journal.events
        self._log(f"build of {events:,} events in a warm session")
        outcome = self._measure(
            "spark.build_warm", events=events, first=str(lakes[0]), lake=str(lakes[1])
        )
        return _figure(BUILD_WARM, WAYPOST, events, copies, outcome)

    def run(self, journal: Journal) -> Iterator[Figure]:
        """Measure the command `waypost pipeline run` over one journal: all of it, with its start.

        First in a process of its own, which finds a class archive, then twice on a server.
        """
        commands = Commands(self._scratch)
        self._log("preparing: class archive")
        commands.warm()
        runs = []
        for _ in range(_RUNS):
            self._log(f"run over {journal.events:,} events: fresh process")
            runs.append(commands.run(journal.data, self._new_path("run-lake"), "--no-server"))
        best = min(runs, key=lambda one: one.seconds)
        yield _figure(RUN_FRESH, WAYPOST, journal.events, 1, best)
        with commands.server():
            runs = []
            for _ in range(1 + _RUNS):  # the first one warms the server up
                self._log(f"run over {journal.events:,} events: warm server")
                runs.append(commands.run(journal.data, self._new_path("run-lake")))
        best = min(runs[1:], key=lambda one: one.seconds)
        yield _figure(RUN_WARM, WAYPOST, journal.events, 1, best)

    def trace(self) -> Iterator[Figure]:
        """Measure the command `waypost pipeline import-trace`: all of it, with its start."""
        commands, file = Commands(self._scratch), self._scratch / "trace.txt"
        lines = make_trace(file)
        commands.warm()
        self._log(f"import of a trace of {lines:,} lines")
        runs = [commands.import_trace(file, self._new_path("trace-lake")) for _ in range(_RUNS)]
        yield _figure(IMPORT, WAYPOST, lines, 1, min(runs, key=lambda one: one.seconds))

    def backtest(self, journal: Journal) -> Iterator[Figure]:
        """Measure backtests; the sequential replay runs on one copy."""
        kinds = {"same settings": None, "halved limits": halved().decode()}
        sequential = {}
        for kind, settings in kinds.items():
            self._log(f"{SEQUENTIAL}, {kind}: {journal.arrivals:,} messages")
            outcome = self._measure("sequential.replay", data=str(journal.data), settings=settings)
            sequential[kind] = _figure(
                f"backtest, {kind}", SEQUENTIAL, journal.arrivals, 1, outcome
            )
            self._log(f"  {sequential[kind].rate:,.0f} messages/s")
            yield sequential[kind]
        for size in self._sizes:
            copies = journal.copies_for_arrivals(size)
            lake = self._lake(journal, copies)
            for kind, settings in kinds.items():
                name = f"backtest, {kind}"
                amount = copies * journal.arrivals
                runs = []
                for _ in range(self._runs(size)):
                    self._log(f"{name}, of {amount:,} messages: {WAYPOST}")
                    outcome = self._measure(
                        "spark.backtest",
                        lake=str(lake),
                        settings=settings,
                        events=copies * journal.events,
                    )
                    runs.append(_figure(name, WAYPOST, amount, copies, outcome))
                    self._log(f"  {outcome.seconds:.1f} s")
                best = fastest(runs)
                _require_same_decisions(best, sequential[kind])
                yield best

    def payloads(self) -> Iterator[Figure]:
        """Measure the cost of large payloads, which no table needs."""
        messages = max(1000, min(150_000, self._sizes[0] * 3 // 20))
        journals = {
            name: self._journal(
                "make_payloads", f"payloads-{size}", messages=messages, payload_bytes=size
            )
            for name, size in PAYLOADS.items()
        }
        runs: dict[str, list[Figure]] = {name: [] for name in PAYLOADS}
        for _ in range(_RUNS):
            for name, journal in journals.items():
                self._log(f"ingest of {journal.events:,} events with payloads of {name}")
                lake = self._new_path("payload-lake")
                outcome = self._measure(
                    "spark.ingest", data=str(journal.data), relays=["r0"], lake=str(lake)
                )
                job = f"ingest of payloads of {name}"
                runs[name].append(_figure(job, WAYPOST, journal.events, 1, outcome))
                self._log(f"  {outcome.seconds:.1f} s")
        figures = [fastest(of_size) for of_size in runs.values()]
        require_agreement(figures)
        yield from figures

    def _turns(self, size: int, what: str, run: Callable[[str], Figure]) -> Iterator[Figure]:
        """Run the engines in turns. A failure is a result, except that of Waypost."""
        runs: dict[str, list[Figure]] = {peer: [] for peer in self._peers}
        for _ in range(self._runs(size)):
            for peer, own in runs.items():
                if any(one.failure for one in own):
                    continue
                self._log(f"{what}: {peer}")
                try:
                    own.append(run(peer))
                except RuntimeError as problem:
                    if peer == WAYPOST:
                        raise
                    own.append(Figure(what, peer, 0, 0, None, failure=str(problem)))
                self._log(f"  {_outcome(own[-1])}")
        best = [fastest(own) for own in runs.values()]
        require_agreement(best)
        ours = best[0]
        for one in best:
            same = {"job": ours.job, "amount": ours.amount, "copies": ours.copies}
            yield Figure(**{**one.__dict__, **same})

    def _runs(self, size: int) -> int:
        return 1 if size == self._sizes[-1] else _RUNS

    def _journal(self, task: str, name: str, **arguments: int) -> Journal:
        self._log(f"preparing: journal {name}")
        data = self._scratch / name
        outcome = self._measure(f"journal.{task}", data=str(data), **arguments)
        made = Journal(**{**outcome.found["journal"], "data": data})
        self._log(
            f"  {made.events:,} events, {made.arrivals:,} messages, {made.bytes >> 20:,} MB,"
            f" in {outcome.seconds:.0f} s"
        )
        return made

    def _lake(self, journal: Journal, copies: int) -> Path:
        """Return a lake with `copies` relays, extended from a smaller one if there is one."""
        if copies not in self._lakes:
            smaller = max((one for one in self._lakes if one < copies), default=0)
            lake = self._new_path(f"lake-{copies}")
            if smaller:
                lake = self._linked(self._lakes[smaller], f"lake-{copies}")
            self._log(f"preparing: ingest of {(copies - smaller) * journal.events:,} events")
            missing = _relays(copies)[smaller:]
            self._measure("spark.ingest", data=str(journal.data), relays=missing, lake=str(lake))
            self._lakes[copies] = lake
        return self._lakes[copies]

    def _linked(self, lake: Path, name: str) -> Path:
        """Return a writable copy made of hard links: a lake never changes a file."""
        copy = self._new_path(name)
        shutil.copytree(lake, copy, copy_function=os.link)
        return copy

    def _new_path(self, name: str) -> Path:
        path = self._scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def _measure(self, task: str, **arguments: Any) -> Outcome:
        return measure(task, self._scratch / "errors.txt", **arguments)


def _relays(copies: int) -> list[str]:
    return [f"r{number}" for number in range(copies)]


def _figure(job: str, peer: str, amount: int, copies: int, outcome: Outcome) -> Figure:
    found = outcome.found
    return Figure(
        job=job,
        peer=peer,
        amount=amount,
        copies=copies,
        seconds=outcome.seconds,
        peak_bytes=outcome.peak_bytes,
        rows=found.get("rows", {}),
        cpu_seconds=outcome.cpu_seconds,
        start_seconds=found.get("start_seconds", 0.0),
        reading_seconds=found.get("reading_seconds", 0.0),
    )


def _require_same_decisions(ours: Figure, sequential: Figure) -> None:
    """Raise `RuntimeError` unless `copies` relays have `copies` times the decisions of one."""
    for name, number in sequential.rows.items():
        if ours.rows[name] != number * ours.copies:
            raise RuntimeError(
                f"{ours.job}: Spark has {ours.rows[name]:,} {name}, the {SEQUENTIAL} has"
                f" {number * ours.copies:,} for {ours.copies} copies"
            )


def _outcome(figure: Figure) -> str:
    if figure.seconds is None:
        return f"failed: {figure.failure_line}"
    return f"{figure.seconds:.1f} s, {figure.peak_bytes >> 20:,} MB"
