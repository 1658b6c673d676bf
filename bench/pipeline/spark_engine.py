"""Waypost's own jobs, timed in a running session; starting Java is timed separately.

The session is that of `waypost pipeline`, with its settings.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from waypost.pipeline.ingest.job import ingest as take_in
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake, open_lake
from waypost.pipeline.replay.backtest import backtest as replay
from waypost.pipeline.spark.session import Session, SparkChoice, spark_session
from waypost.pipeline.tables.build import build as build_tables
from waypost.pipeline.tables.registry import TABLES

Found = dict[str, int]


def run(
    job: Callable[..., tuple[float, Found]], events: int | None = None, **arguments: Any
) -> dict[str, Any]:
    """Start a session for about `events` events, run `job` in it, and return the time of each."""
    choice = SparkChoice(events=events)
    if job is backtest:
        choice = choice.for_replay()
    begin = time.perf_counter()
    with spark_session(choice, os.environ) as spark:
        started = time.perf_counter() - begin
        spark.range(1000).selectExpr("sum(id)").collect()
        seconds, rows = job(spark, **arguments)
    return {"seconds": seconds, "start_seconds": started, "rows": rows}


def ingest(spark: Session, data: str, lake: str, relays: list[str]) -> tuple[float, Found]:
    """Ingest one journal under each of `relays`, except those already in `lake`."""
    to = open_lake(spark, lake, create=True)
    places = parse_sources([f"{relay}={data}" for relay in relays])
    begin = time.perf_counter()
    taken = take_in(to, places)
    seconds = time.perf_counter() - begin
    if taken.corrupt or taken.missing:
        raise RuntimeError(f"{taken.corrupt} corrupt lines, {taken.missing} missing events")
    return seconds, {EVENTS_TABLE: taken.events}


def build(spark: Session, lake: str) -> tuple[float, Found]:
    """Build all tables of a lake that has none; return the numbers of their rows."""
    of = open_lake(spark, lake)
    begin = time.perf_counter()
    build_tables(of)
    return time.perf_counter() - begin, _rows(of)


def build_warm(spark: Session, first: str, lake: str) -> tuple[float, Found]:
    """Build the tables of `lake` in a session that has built those of `first`."""
    build(spark, first)
    return build(spark, lake)


def backtest(spark: Session, lake: str, settings: str | None) -> tuple[float, Found]:
    """Run a backtest; return the numbers of decisions and of differences."""
    of = open_lake(spark, lake)
    begin = time.perf_counter()
    found = replay(of, None if settings is None else settings.encode())
    seconds = time.perf_counter() - begin
    return seconds, {
        "messages": found.messages,
        "differences": found.differences,
        **msgspec.structs.asdict(found.scope),
    }


def _rows(lake: Lake) -> Found:
    return {table: lake.read(table, schema).count() for table, schema in TABLES.items()}
