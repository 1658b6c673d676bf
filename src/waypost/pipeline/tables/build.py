"""`build`: builds the tables from `events`, rewriting only the days affected by new events.

Rule 1  The result does not depend on how events were split over runs: it equals one build of all.
Rule 2  A day is affected if it has new events, or arrivals of messages that new events change.
Rule 3  A message may change on later days, so transitions are read from the first affected day on;
        arrivals only of the affected days.
Rule 4  Independent tables are written at the same time: while Spark plans one and Java compiles
        it, tasks of another can run.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date, timedelta
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.delta import EVENTS_WITH_COMMENTS, update_logs
from waypost.pipeline.lake.events import EVENTS, TRANSITIONS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Change, Lake
from waypost.pipeline.lake.manifest import EventBatch
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.pipeline.tables import (
    anomalies,
    breakers,
    dead_letters,
    inboxes,
    latency,
    loops,
    messages,
    pairs,
    pressure,
    rejections,
    senders,
    sessions,
    threads,
    traffic,
)
from waypost.pipeline.tables.expressions import KEY, arrivals_of, leaves_message, transitions_of
from waypost.pipeline.tables.registry import TABLES, TABLES_WITH_COMMENTS

_PARALLEL_TABLES = 3


class BuildSummary(msgspec.Struct, kw_only=True):
    """The result of a run: new batches of events, and the days rewritten for them."""

    batches: int = 0
    days: list[str] = []
    messages: int = 0
    """Rows of `messages` on those days."""

    notes: list[str] = []
    """Why Delta tables are not up to date."""

    @property
    def nothing_new(self) -> bool:
        """Return whether the tables were already up to date."""
        return not self.batches


def build(lake: Lake) -> BuildSummary:
    """Bring the tables up to date with `events`, in one commit."""
    change = lake.begin()
    batches = list(change.draft.unbuilt)
    if not batches:
        return BuildSummary(notes=update_delta_logs(lake))
    fit_shuffles(lake.spark, change.draft.event_bytes)
    days = affected_days(change, batches)
    written = _write_tables(change, days)
    change.draft.unbuilt.clear()
    change.merge_events()
    change.commit()
    notes = update_delta_logs(lake)
    return BuildSummary(batches=len(batches), days=days, messages=written, notes=notes)


def update_delta_logs(lake: Lake) -> list[str]:
    """Bring all Delta tables up to date; returns a note for each that it could not."""
    return update_logs(lake.path, lake.manifest, {**EVENTS_WITH_COMMENTS, **TABLES_WITH_COMMENTS})


def affected_days(change: Change, batches: Iterable[EventBatch]) -> list[str]:
    """Return the days to rewrite, in order."""
    with_new = {day for batch in batches for day in batch.days}
    older = [day for day in change.draft.days(messages.NAME) if day not in with_new]
    changed = _days_of_changed_messages(change, batches, older) if older else set()
    return sorted(with_new | changed)


def _days_of_changed_messages(
    change: Change, batches: Iterable[EventBatch], older: list[str]
) -> set[str]:
    """Return the `older` days with arrivals of messages that new events change."""
    new = reduce(DataFrame.unionByName, (change.read_batch(one) for one in batches))
    repeats_id = leaves_message() & F.col("chosen_id")
    is_transition = F.col("kind").isin(*TRANSITIONS)
    changed = new.where(is_transition | repeats_id).select(*KEY)
    known = _read(change, messages.NAME, older)
    if not _out_of_order(change, new):
        known = known.where(F.col("state").isin(*messages.OPEN_STATES))
    days = known.join(changed, on=[*KEY], how="left_semi").select("day").distinct()
    return {str(row.day) for row in days.collect()}


def _out_of_order(change: Change, new: DataFrame) -> bool:
    """Return whether an earlier segment came after a later one: final states may change then."""
    found: dict[str, set[int]] = {}
    for row in new.select("relay", "segment").distinct().collect():
        found.setdefault(row.relay, set()).add(row.segment)
    return any(
        later not in segments and later > min(segments)
        for relay, segments in found.items()
        for later in change.draft.relays.get(relay, {})
    )


def _write_tables(change: Change, days: list[str]) -> int:
    """Write all tables for `days`; returns the rows of `messages`."""
    pool = ThreadPoolExecutor(_PARALLEL_TABLES, thread_name_prefix="build")
    try:
        # In this order, each waits only for tables that were started before it.
        first_messages = pool.submit(_write_messages, change, days)
        first_arrivals = pool.submit(_write_arrival_tables, change, days)
        first_events = pool.submit(_write_event_tables, change, days)
        last = [
            pool.submit(_write_outcome_tables, change, days, [first_messages]),
            pool.submit(_write_inboxes, change, days, [first_messages, first_arrivals]),
            pool.submit(_write_anomalies, change, days[0], [first_arrivals, first_events]),
        ]
        _wait_for(last)
        return first_messages.result()
    finally:
        # After a failure, let the others end: no writer outlives the job.
        pool.shutdown(wait=True, cancel_futures=True)


def _wait_for(tables: Iterable[Future[Any]]) -> None:
    """Wait until `tables` are written; re-raises the error of any."""
    for table in tables:
        table.result()


def _read(change: Change, name: str, days: Iterable[str] | None = None) -> DataFrame:
    return change.read(name, TABLES[name], days)


def _events(change: Change, days: Iterable[str] | None = None) -> DataFrame:
    return change.read(EVENTS_TABLE, EVENTS, days)


def _write_messages(change: Change, days: list[str]) -> int:
    known = change.draft.days(EVENTS_TABLE)
    since = _events(change, [day for day in known if day >= days[0]])
    arrivals, moved = arrivals_of(_events(change, days)), transitions_of(since)
    chosen = arrivals_of(since).where(leaves_message() & F.col("chosen_id"))
    # A final message of an earlier day is not read again; its events since then are.
    is_whole = min(known) >= days[0]
    some_repeat = messages.ids_repeat(chosen, moved, is_whole=is_whole)
    rows = messages.build(arrivals, moved, chosen, some_repeat=some_repeat)
    return change.rewrite(messages.NAME, rows, days)


def _write_arrival_tables(change: Change, days: list[str]) -> None:
    """Write the tables that aggregate arrivals."""
    events = _events(change, days)
    arrivals = arrivals_of(events)
    change.rewrite(pairs.NAME, pairs.build(arrivals), days)
    change.rewrite(senders.NAME, senders.build(arrivals, _read(change, pairs.NAME, days)), days)
    change.rewrite(pressure.NAME, pressure.build(arrivals), days)
    change.rewrite(traffic.NAME, traffic.build(arrivals, transitions_of(events)), days)


def _write_event_tables(change: Change, days: list[str]) -> None:
    """Write the tables with a row for each event of a kind, and those of the rarest kinds."""
    arrivals = arrivals_of(_events(change, days))
    change.rewrite(rejections.NAME, rejections.build(arrivals), days)
    change.rewrite(loops.NAME, loops.build(arrivals), days)
    change.rewrite(threads.NAME, threads.build(arrivals), days)
    change.rewrite(breakers.NAME, breakers.build(_events(change)))
    change.rewrite(sessions.NAME, sessions.build(_events(change)))


def _write_outcome_tables(change: Change, days: list[str], first: Iterable[Future[Any]]) -> None:
    """Write the tables that aggregate the outcomes of messages."""
    _wait_for(first)
    built = _read(change, messages.NAME, days)
    change.rewrite(latency.NAME, latency.build(built), days)
    change.rewrite(dead_letters.NAME, dead_letters.build(built), days)


def _write_inboxes(change: Change, days: list[str], first: Iterable[Future[Any]]) -> None:
    _wait_for(first)
    rows = inboxes.build(
        _read(change, pairs.NAME, days),
        _read(change, pressure.NAME, days),
        transitions_of(_events(change, days)),
        _read(change, messages.NAME, days),
    )
    change.rewrite(inboxes.NAME, rows, days)


def _write_anomalies(change: Change, first_day: str, first: Iterable[Future[Any]]) -> None:
    """Write from the first affected day on, because a day is compared with those before it."""
    _wait_for(first)
    known = change.draft.days(senders.NAME)
    wanted = [day for day in known if day >= first_day]
    earliest = str(date.fromisoformat(first_day) - timedelta(days=anomalies.EARLIER_DAYS))
    found = anomalies.build(
        _read(change, senders.NAME, [day for day in known if day >= earliest]),
        _read(change, rejections.NAME, wanted),
        arrivals_of(_events(change, wanted)),
    )
    found = found.where(F.col("day") >= F.lit(first_day).cast("date"))
    change.rewrite(anomalies.NAME, found, wanted)
