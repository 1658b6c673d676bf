"""`build`: events become tables, and only the days are written that something new is known of.

Rule 1  Whatever the steps in which events came, the tables are those of one build over all.
Rule 2  A day is touched if it has new events, or messages arrived on it that new events concern.
Rule 3  What happens to a message may happen on later days, so movements are read from the first
        touched day on; arrivals only of the touched days.
Rule 4  Tables that do not need each other are written at the same time: while Spark plans one and
        Java compiles it, tasks of another can run.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date, timedelta
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import EVENTS, MOVEMENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Change, Lake
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
    traffic,
)
from waypost.pipeline.tables.expressions import KEY, arrivals_of, is_kept, movements_of

_AT_ONCE = 3
"""Tables in the making at the same time."""


class Built(msgspec.Struct, kw_only=True):
    """What a run built: batches of events that were new, and the days written for them."""

    batches: int = 0
    days: list[str] = []
    messages: int = 0
    """Rows of `messages` on those days."""

    @property
    def nothing_new(self) -> bool:
        """Whether the tables knew everything already."""
        return not self.batches


def build(lake: Lake) -> Built:
    """Bring the tables up to date with `events`, in one commit."""
    change = lake.begin()
    batches = list(change.draft.unbuilt)
    if not batches:
        return Built()
    fit_shuffles(lake.spark, change.draft.events)
    days = touched_days(change, batches)
    written = _write_tables(change, days)
    change.draft.unbuilt.clear()
    change.commit()
    return Built(batches=len(batches), days=days, messages=written)


def touched_days(change: Change, batches: Iterable[int]) -> list[str]:
    """The days to write, in order."""
    known = change.draft.tables.get(EVENTS_TABLE, {})
    names = {f"batch={batch}" for batch in batches}
    with_new = {day for day, parts in known.items() if names.intersection(parts)}
    older = [day for day in change.draft.days(messages.NAME) if day not in with_new]
    return sorted(with_new | (_concerned(change, batches, with_new, older) if older else set()))


def _concerned(
    change: Change, batches: Iterable[int], with_new: set[str], older: list[str]
) -> set[str]:
    """Which of the `older` days have messages that new events concern."""
    new = reduce(DataFrame.unionByName, (change.read_batch(one, with_new) for one in batches))
    comes_again = is_kept() & F.col("chosen_id")
    moves = F.col("kind").isin(*MOVEMENTS)
    moved = new.where(moves | comes_again).select(*KEY)
    known = change.read(messages.NAME, messages.SCHEMA, older)
    if not _out_of_order(change, new):
        known = known.where(F.col("state").isin(*messages.OPEN_STATES))
    concerned = known.join(moved, on=[*KEY], how="left_semi").select("day").distinct()
    return {str(row.day) for row in concerned.collect()}


def _out_of_order(change: Change, new: DataFrame) -> bool:
    """Whether a relay's earlier segment came after a later one: then what is over may reopen."""
    found: dict[str, set[int]] = {}
    for row in new.select("relay", "segment").distinct().collect():
        found.setdefault(row.relay, set()).add(row.segment)
    return any(
        later not in segments and later > min(segments)
        for relay, segments in found.items()
        for later in change.draft.relays.get(relay, {})
    )


def _write_tables(change: Change, days: list[str]) -> int:
    """Write all tables for `days`; returns the number of rows of `messages`."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="build")
    try:
        # In this order each waits only for what has begun before it.
        of_messages = pool.submit(_write_messages, change, days)
        of_arrivals = pool.submit(_write_arrivals, change, days)
        of_lines = pool.submit(_write_lines, change, days)
        ends = [
            pool.submit(_write_lives, change, days, [of_messages]),
            pool.submit(_write_inboxes, change, days, [of_messages, of_arrivals]),
            pool.submit(_write_anomalies, change, days[0], [of_arrivals, of_lines]),
        ]
        _wait_for(ends)
        return of_messages.result()
    finally:
        # If one failed, the others end first: the next build writes to the same directories.
        pool.shutdown(wait=True, cancel_futures=True)


def _wait_for(others: Iterable[Future[Any]]) -> None:
    """Wait until `others` are written; raises what one of them raised."""
    for other in others:
        other.result()


def _events(change: Change, days: Iterable[str] | None = None) -> DataFrame:
    return change.read(EVENTS_TABLE, EVENTS, days)


def _write_messages(change: Change, days: list[str]) -> int:
    since = _events(change, [day for day in change.draft.days(EVENTS_TABLE) if day >= days[0]])
    arrivals = arrivals_of(_events(change, days))
    chosen = arrivals_of(since).where(is_kept() & F.col("chosen_id"))
    some_repeat = not messages.repeated(chosen).isEmpty()
    rows = messages.build(arrivals, movements_of(since), chosen, some_repeat=some_repeat)
    return change.rewrite(messages.NAME, rows, days)


def _write_arrivals(change: Change, days: list[str]) -> None:
    """Tables that add up what arrived."""
    lines = _events(change, days)
    arrivals = arrivals_of(lines)
    change.rewrite(pairs.NAME, pairs.build(arrivals), days)
    of_pairs = change.read(pairs.NAME, pairs.SCHEMA, days)
    change.rewrite(senders.NAME, senders.build(arrivals, of_pairs), days)
    change.rewrite(pressure.NAME, pressure.build(arrivals), days)
    change.rewrite(traffic.NAME, traffic.build(arrivals, movements_of(lines)), days)


def _write_lines(change: Change, days: list[str]) -> None:
    """Tables with a row for each line of a kind, and those of the rarest lines."""
    arrivals = arrivals_of(_events(change, days))
    change.rewrite(rejections.NAME, rejections.build(arrivals), days)
    change.rewrite(loops.NAME, loops.build(arrivals), days)
    change.rewrite(breakers.NAME, breakers.build(_events(change)))
    change.rewrite(sessions.NAME, sessions.build(_events(change)))


def _write_lives(change: Change, days: list[str], first: Iterable[Future[Any]]) -> None:
    """Tables that add up what became of messages."""
    _wait_for(first)
    of_messages = change.read(messages.NAME, messages.SCHEMA, days)
    change.rewrite(latency.NAME, latency.build(of_messages), days)
    change.rewrite(dead_letters.NAME, dead_letters.build(of_messages), days)


def _write_inboxes(change: Change, days: list[str], first: Iterable[Future[Any]]) -> None:
    _wait_for(first)
    of_pairs = change.read(pairs.NAME, pairs.SCHEMA, days)
    of_pressure = change.read(pressure.NAME, pressure.SCHEMA, days)
    of_messages = change.read(messages.NAME, messages.SCHEMA, days)
    movements = movements_of(_events(change, days))
    change.rewrite(inboxes.NAME, inboxes.build(of_pairs, of_pressure, movements, of_messages), days)


def _write_anomalies(change: Change, first_day: str, first: Iterable[Future[Any]]) -> None:
    """From the first touched day on, since a day is compared with those before it."""
    _wait_for(first)
    known = change.draft.days(senders.NAME)
    wanted = [day for day in known if day >= first_day]
    furthest = str(date.fromisoformat(first_day) - timedelta(days=anomalies.EARLIER_DAYS))
    read = change.read(senders.NAME, senders.SCHEMA, [day for day in known if day >= furthest])
    rejected = change.read(rejections.NAME, rejections.SCHEMA, wanted)
    arrivals = arrivals_of(_events(change, wanted))
    found = anomalies.build(read, rejected, arrivals).where(
        F.col("day") >= F.lit(first_day).cast("date")
    )
    change.rewrite(anomalies.NAME, found, wanted)
