"""Renders the figures as JSON, and those as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.pipeline.figures import (
    DUCKDB,
    POLARS,
    SEQUENTIAL,
    WAYPOST,
    Figure,
    growth,
    pick,
    targets,
    time_ratio,
)
from bench.tables import Table

_NOTES = (
    "Build: DuckDB builds all tables except loops and anomalies; Polars also lacks breakers and"
    " sessions. Growth is the time per event, relative to the smallest size.",
    "Copies are the same journal under several names, in the page cache for all engines."
    " Spark is timed in a running session.",
    "Memory: sum of the peaks of all processes; that of Waypost includes Java, with a heap of up to"
    " 1 GB per core and at least 2 GB.",
)


def to_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return all figures; times in seconds, memory in bytes."""
    return {"figures": [asdict(one) for one in figures]}


def tables(found: dict[str, Any]) -> list[Table]:
    """Return a table for each job, and which targets are met."""
    figures = [Figure(**one) for one in found["figures"]]
    shown = [_compared(figures, job) for job in ("ingest", "build") if pick(figures, job, WAYPOST)]
    shown += [_backtest(figures, one) for one in figures if one.peer == SEQUENTIAL]
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
    starts = [one.start_seconds for one in figures if one.start_seconds]
    notes = [*_NOTES]
    if starts:
        notes.append(f"Each start of Spark took {min(starts):.1f} to {max(starts):.1f} s")
    shown.append(Table("Targets", ["target"], [[one] for one in targets(figures)], " ".join(notes)))
    return shown


def _compared(figures: Sequence[Figure], job: str) -> Table:
    ours = pick(figures, job, WAYPOST)
    rows = []
    for one in ours:
        peers = [_peer(figures, job, peer, one) for peer in (DUCKDB, POLARS)]
        rows.append([*_own(one), *peers, f"{growth(one, ours[0]):.2f}×"])
    return Table(
        f"{job}: Waypost, DuckDB and Polars (in parentheses: Waypost's time relative to theirs)",
        ["events", "s", "events/s", "memory", "DuckDB s", "Polars s", "growth"],
        rows,
    )


def _peer(figures: Sequence[Figure], job: str, peer: str, ours: Figure) -> str:
    for one in pick(figures, job, peer):
        if one.amount == ours.amount:
            ratio = time_ratio(one, [ours])
            return "failed" if ratio is None else f"{_seconds(one)} ({ratio:.1f}×)"
    return "–"


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
        ["messages", "s", "messages/s", "memory", "differ", "ratio", "growth"],
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


def _own(one: Figure) -> tuple[str, str, str, str]:
    memory = f"{one.peak_bytes / 2**30:.1f} GB"
    return f"{one.amount:,}", _seconds(one), f"{one.rate:,.0f}", memory


def _seconds(one: Figure) -> str:
    return f"{one.seconds or 0.0:.1f}" if (one.seconds or 0.0) < 100 else f"{one.seconds:.0f}"
