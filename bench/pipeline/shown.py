"""The figures as tables for people, or as JSON for programs."""

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
    marks,
    pick,
    time_ratio,
)

_LEFT_OUT = (
    "Build: DuckDB makes all tables but loops and anomalies; Polars all but those, breakers and"
    " sessions. Growth is the time for each event by that at the smallest size.",
    "Copies are the same journal under several names; its pages are in the cache for everybody."
    " Spark is timed in a session that is up.",
    "Memory: peaks of all processes added up; for Waypost with Java, whose heap may be"
    " 1 GB for each core, and at least 2.",
)


def to_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """Everything, and the machine; times in seconds, memory in bytes."""
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "figures": [{**asdict(one), "per_second": one.rate} for one in figures],
        "marks": marks(figures),
    }


def show(figures: Sequence[Figure]) -> None:
    """Print a table for each job, and whether the marks are met."""
    console = Console()
    for job in ("ingest", "build"):
        if pick(figures, job, WAYPOST):
            console.print(_compared(figures, job))
    for plain in (one for one in figures if one.peer == SEQUENTIAL):
        console.print(_backtest(figures, plain))
    payloads = [one for one in figures if one.job.startswith("ingest of payloads")]
    if payloads:
        console.print(_payloads(payloads))
    for one in figures:
        if one.failure:
            what = f"{one.peer}, {one.job} of {one.amount:,}"
            console.print(f"{what} failed: {one.why_failed}", markup=False)
    starts = [one.start_seconds for one in figures if one.start_seconds]
    if starts:
        console.print(f"Starting Spark took {min(starts):.1f} to {max(starts):.1f} s, each time.")
    for note in (*_LEFT_OUT, *marks(figures)):
        console.print(note, highlight=False)


def _compared(figures: Sequence[Figure], job: str) -> Table:
    ours = pick(figures, job, WAYPOST)
    table = _table(
        f"{job}: Waypost, and DuckDB and Polars (Waypost's time by theirs)",
        *("events", "s", "events/s", "memory", "DuckDB s", "Polars s", "growth"),
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


def _backtest(figures: Sequence[Figure], plain: Figure) -> Table:
    ours = pick(figures, plain.job, WAYPOST)
    table = _table(
        f"{plain.job}: Waypost, and its rate by that of the {SEQUENTIAL}",
        *("messages", "s", "messages/s", "memory", "differ", "ratio", "growth"),
    )
    for one in ours:
        table.add_row(
            *_own(one),
            f"{one.rows['differences']:,}",
            f"{one.rate / plain.rate:.1f}×",
            f"{growth(one, ours[0]):.2f}×",
        )
    with_reading = plain.amount / ((plain.seconds or 0.0) + plain.reading_seconds)
    table.caption = (
        f"The {SEQUENTIAL} decides {plain.rate:,.0f} messages/s, {with_reading:,.0f} with reading"
        f" the journal, on one copy of {plain.amount:,}; it is linear, so that holds for more."
        " Waypost's time has the reading in it. All numbers of decisions agree."
    )
    return table


def _payloads(payloads: Sequence[Figure]) -> Table:
    table = _table("Ingest by size of payloads", "payload", "events", "s", "events/s", "per event")
    for one in payloads:
        table.add_row(
            one.job.rpartition(" of ")[2],
            f"{one.amount:,}",
            _seconds(one),
            f"{one.rate:,.0f}",
            f"{payloads[0].rate / one.rate:.2f}×",
        )
    table.caption = "Payloads over 4 KB stand beside the journal's lines, in files of their own."
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
