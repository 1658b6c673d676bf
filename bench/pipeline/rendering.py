"""Renders the figures as JSON, and those as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.pipeline.figures import (
    COMMANDS,
    DUCKDB,
    POLARS,
    SEQUENTIAL,
    WAYPOST,
    Figure,
    growth,
    pick,
    time_ratio,
)
from bench.tables import Table

_NOTES = (
    "In parentheses: Waypost's time relative to theirs. Growth: time per event relative to the"
    " smallest size. CPU time includes the start of Spark, the other times do not. Memory: sum of"
    " the peaks of all processes, with Java's. Copies are the same journal under several names"
)


def to_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return all figures; times in seconds, memory in bytes."""
    return {"figures": [asdict(one) for one in figures]}


def tables(found: dict[str, Any]) -> list[Table]:
    """Return a table for each job."""
    figures = [Figure(**one) for one in found["figures"]]
    shown = [_compared(figures, job) for job in ("ingest", "build") if pick(figures, job, WAYPOST)]
    shown += [_backtest(figures, one) for one in figures if one.peer == SEQUENTIAL]
    commands = [one for one in figures if one.job in COMMANDS]
    if commands:
        shown.append(_commands(commands))
    payloads = [one for one in figures if one.job.startswith("ingest of payloads")]
    if payloads:
        shown.append(_payloads(payloads))
    failures = [
        [f"{one.peer}, {one.job} of {one.amount:,}", one.failure_line]
        for one in figures
        if one.failure
    ]
    if failures:
        shown.append(Table("Failures", ["job", "failure"], failures))
    return shown


def _compared(figures: Sequence[Figure], job: str) -> Table:
    ours = pick(figures, job, WAYPOST)
    rows = []
    for one in ours:
        duckdb, polars = (_peer(figures, job, peer, one) for peer in (DUCKDB, POLARS))
        rows.append([*_own(one), f"{growth(one, ours[0]):.2f}×", *duckdb, polars[0]])
    own = ["events", "s", "events/s", "CPU s", "memory", "growth"]
    peers = ["DuckDB s", "events/s", "memory", "Polars s"]
    return Table(f"{job}: Waypost, DuckDB and Polars", [*own, *peers], rows, _NOTES)


def _peer(figures: Sequence[Figure], job: str, peer: str, ours: Figure) -> tuple[str, str, str]:
    """Return time, rate and memory of a peer at the size of `ours`."""
    for one in pick(figures, job, peer):
        if one.amount == ours.amount:
            ratio = time_ratio(one, [ours])
            if ratio is None:
                return "failed", "–", "–"
            return f"{_seconds(one)} ({ratio:.1f}×)", f"{one.rate:,.0f}", _memory(one)
    return "–", "–", "–"


def _commands(figures: Sequence[Figure]) -> Table:
    rows = [[one.job, *_own(one)] for one in figures]
    return Table(
        "Whole commands, with their start",
        ["command", "events or lines", "s", "per second", "CPU s", "memory"],
        rows,
        "CPU time and memory of a warm run are those of the command, not of the server",
    )


def _backtest(figures: Sequence[Figure], sequential: Figure) -> Table:
    ours = pick(figures, sequential.job, WAYPOST)
    rows = [
        [
            *_own(one),
            f"{one.rows['differences']:,}",
            f"{one.rate / sequential.rate:.1f}×",
            f"{growth(one, ours[0]):.2f}×",
        ]
        for one in ours
    ]
    with_reading = sequential.amount / ((sequential.seconds or 0.0) + sequential.reading_seconds)
    return Table(
        f"{sequential.job}: Waypost, and its rate relative to the {SEQUENTIAL}",
        ["messages", "s", "messages/s", "CPU s", "memory", "differ", "ratio", "growth"],
        rows,
        f"The {SEQUENTIAL} decides {sequential.rate:,.0f} messages/s, or {with_reading:,.0f}"
        f" with reading the journal, on one copy of {sequential.amount:,}; it is linear,"
        " so this holds for more. Waypost's time includes reading. The numbers of decisions agree",
    )


def _payloads(payloads: Sequence[Figure]) -> Table:
    rows = [
        [
            one.job.rpartition(" of ")[2],
            f"{one.amount:,}",
            _seconds(one),
            f"{one.rate:,.0f}",
            f"{payloads[0].rate / one.rate:.2f}×",
        ]
        for one in payloads
    ]
    return Table(
        "Ingest by payload size",
        ["payload", "events", "s", "events/s", "per event"],
        rows,
        "Payloads over 4 KB are stored outside the journal, each in its own file",
    )


def _own(one: Figure) -> tuple[str, str, str, str, str]:
    cpu = f"{one.cpu_seconds:,.0f}"
    return f"{one.amount:,}", _seconds(one), f"{one.rate:,.0f}", cpu, _memory(one)


def _memory(one: Figure) -> str:
    return f"{one.peak_bytes / 2**30:.1f} GB"


def _seconds(one: Figure) -> str:
    return f"{one.seconds or 0.0:.1f}" if (one.seconds or 0.0) < 100 else f"{one.seconds:.0f}"
