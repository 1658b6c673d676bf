"""Renders the figures as tables or as JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

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

_NOTES = (
    "Build: DuckDB builds all tables except loops and anomalies; Polars also lacks breakers and"
    " sessions. Growth is the time per event, relative to the smallest size.",
    "Copies are the same journal under several names, in the page cache for all engines."
    " Spark is timed in a running session.",
    "Memory: sum of the peaks of all processes; that of Waypost includes Java, with a heap of up to"
    " 1 GB per core and at least 2 GB.",
)


def to_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return all figures and the machine; times in seconds, memory in bytes."""
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "figures": [{**asdict(one), "per_second": one.rate} for one in figures],
        "targets": targets(figures),
    }


def show(figures: Sequence[Figure]) -> None:
    """Print a table for each job, and which targets are met."""
    console = Console()
    for job in ("ingest", "build"):
        if pick(figures, job, WAYPOST):
            console.print(_compared(figures, job))
    for sequential in (one for one in figures if one.peer == SEQUENTIAL):
        console.print(_backtest(figures, sequential))
    payloads = [one for one in figures if one.job.startswith("ingest of payloads")]
    if payloads:
        console.print(_payloads(payloads))
    for one in figures:
        if one.failure:
            what = f"{one.peer}, {one.job} of {one.amount:,}"
            console.print(f"{what} failed: {one.failure_line}", markup=False)
    starts = [one.start_seconds for one in figures if one.start_seconds]
    if starts:
        console.print(f"Each start of Spark took {min(starts):.1f} to {max(starts):.1f} s.")
    for note in (*_NOTES, *targets(figures)):
        console.print(note, highlight=False)


def _compared(figures: Sequence[Figure], job: str) -> Table:
    ours = pick(figures, job, WAYPOST)
    table = _table(
        f"{job}: Waypost, DuckDB and Polars (in parentheses: Waypost's time relative to theirs)",
        "events",
        "s",
        "events/s",
        "memory",
        "DuckDB s",
        "Polars s",
        "growth",
    )
    for one in ours:
        peers = [_peer(figures, job, peer, one) for peer in (DUCKDB, POLARS)]
        table.add_row(*_own(one), *peers, f"{growth(one, ours[0]):.2f}×")
    return table


def _peer(figures: Sequence[Figure], job: str, peer: str, ours: Figure) -> str:
    for one in pick(figures, job, peer):
        if one.amount == ours.amount:
            ratio = time_ratio(one, [ours])
            return "failed" if ratio is None else f"{_seconds(one)} ({ratio:.1f}×)"
    return "–"


def _backtest(figures: Sequence[Figure], sequential: Figure) -> Table:
    ours = pick(figures, sequential.job, WAYPOST)
    table = _table(
        f"{sequential.job}: Waypost, and its rate relative to the {SEQUENTIAL}",
        "messages",
        "s",
        "messages/s",
        "memory",
        "differ",
        "ratio",
        "growth",
    )
    for one in ours:
        table.add_row(
            *_own(one),
            f"{one.rows['differences']:,}",
            f"{one.rate / sequential.rate:.1f}×",
            f"{growth(one, ours[0]):.2f}×",
        )
    with_reading = sequential.amount / ((sequential.seconds or 0.0) + sequential.reading_seconds)
    table.caption = (
        f"The {SEQUENTIAL} decides {sequential.rate:,.0f} messages/s, or {with_reading:,.0f}"
        f" with reading the journal, on one copy of {sequential.amount:,}; it is linear,"
        " so this holds for more. Waypost's time includes reading. The numbers of decisions agree."
    )
    return table


def _payloads(payloads: Sequence[Figure]) -> Table:
    table = _table("Ingest by payload size", "payload", "events", "s", "events/s", "per event")
    for one in payloads:
        table.add_row(
            one.job.rpartition(" of ")[2],
            f"{one.amount:,}",
            _seconds(one),
            f"{one.rate:,.0f}",
            f"{payloads[0].rate / one.rate:.2f}×",
        )
    table.caption = "Payloads over 4 KB are stored outside the journal, each in its own file."
    return table


def _own(one: Figure) -> tuple[str, str, str, str]:
    memory = f"{one.peak_bytes / 2**30:.1f} GB"
    return f"{one.amount:,}", _seconds(one), f"{one.rate:,.0f}", memory


def _seconds(one: Figure) -> str:
    return f"{one.seconds or 0.0:.1f}" if (one.seconds or 0.0) < 100 else f"{one.seconds:.0f}"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
