"""`import-trace`: imports a traffic trace as the `events` of a relay without limits.

A trace has one message on each line: `src dst time [size]`, separated by blanks or commas, times
in Unix seconds. It lacks the time at which a message was read, which is assumed: a fixed delay, or
the recipient's next own message.

Rule 1  Events are ordered by time, then line. At the same instant, messages leave a mailbox before
        others arrive; a message read without delay leaves directly after it arrived.
Rule 2  `seq` counts from 1 without gaps: settings, then the mailboxes, then the traffic.
Rule 3  The recorded settings have every limit off, because the trace has no rejections.
Rule 4  A trace is imported once: a relay that the lake already holds is an error.
"""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from waypost.pipeline.errors import BadTrace, LakeUnusable
from waypost.pipeline.jobs.trace_file import (
    TraceLines,
    bad_examples,
    count_names,
    describe_blocks,
    messages_of,
    parsed_lines,
    trace_lines,
    with_line,
)
from waypost.pipeline.lake.delta import update_all_logs
from waypost.pipeline.lake.events import CORRUPT, LINE, from_lines
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.manifest import IngestedSegment
from waypost.pipeline.spark.collection import collect_together
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.settings import Settings, to_config_document
from waypost.policy.tiers import QosConfig

NEXT_ACTIVITY = "next-activity"
Drain = float | str
"""Seconds, or `NEXT_ACTIVITY`."""

DEFAULT_SIZE = 1024
"""Bytes of a message without a size in the trace."""

BAD_SHARE_MAX = 0.01
_SEGMENT = 1
_DELAY_MAX_S = 10 * 365 * 24 * 3600
_TTL_MS = 10 * 365 * 24 * 3_600_000
_MAX_HOPS, _CALLS = 5, 10
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class TraceSummary(msgspec.Struct, kw_only=True):
    """The result. `merged`: distinct names in the trace that became the same subject."""

    relay: str
    messages: int
    senders: int
    recipients: int
    read: int
    waiting: int
    events: int
    bad_lines: int = 0
    bad_examples: list[str] = []
    merged: int = 0
    days: list[str] = []
    notes: list[str] = []
    """Why Delta tables are not up to date."""


def import_trace(
    lake: Lake,
    file: str,
    size: int = DEFAULT_SIZE,
    drain: Drain = NEXT_ACTIVITY,
    relay: str | None = None,
) -> TraceSummary:
    """Import a trace as the events of `relay`, by default named after the file.

    `size`: bytes of messages without one. `drain`: seconds until a message is read, or
    `"next-activity"`: when its recipient next sends a message; without one it stays unread.
    Raises `BadTrace` if more than 1 % of the lines cannot be read, `LakeUnusable` if the lake
    holds a relay of that name.
    """
    if size < 0:
        raise BadTrace("size must be 0 bytes or more")
    delay_us = _delay_us(drain)
    name = relay or _INVALID_IN_NAME.sub("-", PurePosixPath(file).stem).strip("-.") or "trace"
    if name in lake.manifest.relays:
        raise LakeUnusable(
            f"the lake already holds relay {name!r}, and nothing was added: to import the trace"
            " again, give it another name"
        )
    with parsed_lines(lake.spark, file, size) as parsed:
        messages = messages_of(parsed)
        steps = _steps(_with_drains(messages, delay_us)).persist()
        try:
            blocks, (names,), days = collect_together(
                [describe_blocks(parsed), count_names(messages), _days(steps)]
            )
            trace = trace_lines(blocks)
            contents = _Contents(trace, bad_examples(parsed, trace), names, days)
            _check(contents, file)
            return _write(lake, name, contents, steps)
        finally:
            steps.unpersist()


class _Contents(NamedTuple):
    """What the file holds, counted before anything is written."""

    trace: TraceLines
    bad_examples: list[str]
    names: Row
    days: list[Row]


def _check(contents: _Contents, file: str) -> None:
    trace = contents.trace
    if trace.bad > BAD_SHARE_MAX * (trace.bad + trace.good):
        raise BadTrace(
            f"{trace.bad:,} of {trace.bad + trace.good:,} lines of {file} are not of the form"
            " `src dst time [size]` with times in Unix seconds:"
            + "".join(f"\n  {example}" for example in contents.bad_examples)
        )
    if not trace.good:
        raise BadTrace(f"no messages in {file}")


def _delay_us(drain: Drain) -> int | None:
    """Return the delay, or None for the next activity."""
    if drain == NEXT_ACTIVITY:
        return None
    if isinstance(drain, str) or not 0 <= drain < _DELAY_MAX_S:
        raise BadTrace(f"drain must be seconds (0 or more) or {NEXT_ACTIVITY!r}, not {drain!r}")
    return round(drain * 1_000_000)


def _with_drains(messages: DataFrame, delay_us: int | None) -> DataFrame:
    """Add `drained_us`, the time at which a message is read, or null."""
    if delay_us is not None:
        return messages.withColumn("drained_us", F.col("at_us") + F.lit(delay_us))
    nothing = F.lit(None).cast("bigint")
    messages = messages.drop("source", "target")
    sent = messages.select(F.col("sender").alias("endpoint"), "at_us", F.col("at_us").alias("sent"))
    both = messages.withColumn("sent", nothing).unionByName(sent, allowMissingColumns=True)
    # Backwards in time: a growing frame is computed incrementally, a shrinking one is not.
    later = (
        Window.partitionBy("endpoint")
        .orderBy(F.col("at_us").desc())
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    found = both.withColumn("drained_us", F.min("sent").over(later))
    return found.where(F.col("order").isNotNull()).drop("sent")


def _steps(messages: DataFrame) -> DataFrame:
    """Return a row for each event of a message, with `turn`, its order within an instant."""
    at_once = F.col("drained_us") == F.col("at_us")
    arrival = _step("accepted", F.col("at_us"), F.lit(1), 0)
    drain_turn = F.when(at_once, 1).otherwise(0)
    leaving = [
        _step(kind, F.col("drained_us"), drain_turn, number)
        for number, kind in enumerate(("leased", "acked"), start=1)
    ]
    read = F.when(F.col("drained_us").isNotNull(), F.array(arrival, *leaving))
    exploded = messages.withColumn("step", F.explode(F.coalesce(read, F.array(arrival))))
    steps = exploded.select("block", "order", "sender", "endpoint", "size", "step.*")
    return steps.withColumn("day", F.to_date(F.timestamp_micros("at_us")))


def _step(kind: str, at_us: Column, turn: Column, number: int) -> Column:
    return F.struct(
        F.lit(kind).alias("kind"),
        at_us.alias("at_us"),
        turn.cast("int").alias("turn"),
        F.lit(number).alias("number"),
    )


def _days(steps: DataFrame) -> DataFrame:
    return steps.groupBy("day").agg(
        F.count(F.lit(1)).alias("steps"), F.count_if(F.col("kind") == "acked").alias("read")
    )


def _write(lake: Lake, relay: str, contents: _Contents, steps: DataFrame) -> TraceSummary:
    """Number the steps, prepend settings and mailboxes, and commit."""
    trace, examples, names, days = contents
    mailboxes = steps.where(F.col("kind") == "accepted").select("endpoint").distinct()
    before, offsets = 1 + names.recipients, []
    for row in sorted(days, key=lambda row: row.day):
        offsets.append((row.day, before))
        before += row.steps
    starts = lake.spark.createDataFrame(offsets, "day date, before bigint")
    traffic = _as_lines(_with_depth(_numbered(with_line(steps, trace), starts)))
    lines = _first_lines(mailboxes, trace.first_us).unionByName(traffic, allowMissingColumns=True)
    segment = lines.select(
        F.lit(relay).alias("relay"),
        F.lit(_SEGMENT).cast("bigint").alias("segment"),
        *_line_columns(lines),
    )
    change = lake.begin()
    batch = change.append_events(from_lines(segment))
    change.draft.relays[relay] = {_SEGMENT: IngestedSegment(before, trace.bytes, before)}
    change.commit()
    read = sum(row.read for row in days)
    return TraceSummary(
        relay=relay,
        messages=trace.good,
        senders=names.senders,
        recipients=names.recipients,
        read=read,
        waiting=trace.good - read,
        events=before,
        bad_lines=trace.bad,
        bad_examples=examples,
        merged=names.merged,
        days=batch.days,
        notes=update_all_logs(lake.path, lake.manifest),
    )


def _numbered(steps: DataFrame, starts: DataFrame) -> DataFrame:
    """Add `seq`. Days are numbered in parallel, each from the end of the day before."""
    in_order = Window.partitionBy("day").orderBy("at_us", "turn", "line", "number")
    known = steps.join(F.broadcast(starts), on="day", how="inner")
    return known.withColumn("seq", F.col("before") + F.row_number().over(in_order))


def _with_depth(steps: DataFrame) -> DataFrame:
    """Add `depth`, the number of messages in the mailbox on arrival."""
    change = F.when(F.col("kind") == "accepted", 1).when(F.col("kind") == "acked", -1).otherwise(0)
    earlier = (
        Window.partitionBy("endpoint").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    depth = F.coalesce(F.sum(change).over(earlier), F.lit(0))
    return steps.withColumn("depth", F.when(F.col("kind") == "accepted", depth))


def _as_lines(steps: DataFrame) -> DataFrame:
    """Return the steps as journal lines."""
    arrived = F.col("kind") == "accepted"
    ttl = F.expr("at_us div 1000") + F.lit(_TTL_MS)
    budget = F.struct(
        F.lit(0).alias("hop_count"),
        F.lit(_MAX_HOPS).alias("max_hops"),
        F.array().cast("array<string>").alias("ancestor_chain"),
        ttl.cast("bigint").alias("ttl"),
        F.lit(_CALLS).cast("bigint").alias("call_budget_remaining"),
    )
    return steps.select(
        "kind",
        "seq",
        "at_us",
        F.concat(F.lit("t-"), F.col("line")).alias("id"),
        F.when(arrived, F.col("sender")).alias("sender"),
        F.when(arrived, F.col("endpoint")).alias("subject"),
        "endpoint",
        F.when(arrived, F.lit(True)).alias("chosen_id"),
        F.when(arrived, F.col("size")).alias("size"),
        F.when(arrived, budget).alias("budget"),
        "depth",
    )


def _first_lines(mailboxes: DataFrame, at_us: int) -> DataFrame:
    """Return the settings line, and one line for each recipient's mailbox."""
    spark = mailboxes.sparkSession
    settings = msgspec.json.encode(to_config_document(_NO_LIMITS)).decode()
    start = spark.createDataFrame(
        [("settings", 1, at_us, "start", settings)],
        "kind string, seq bigint, at_us bigint, cause string, settings string",
    )
    by_name = Window.partitionBy(F.lit(0)).orderBy("endpoint")
    registered = mailboxes.select(
        F.lit("endpoint").alias("kind"),
        (F.row_number().over(by_name) + F.lit(1)).cast("bigint").alias("seq"),
        F.lit(at_us).cast("bigint").alias("at_us"),
        "endpoint",
        F.lit("registered").alias("action"),
    )
    return start.unionByName(registered, allowMissingColumns=True)


def _line_columns(lines: DataFrame) -> list[Column]:
    """Return every column of a journal line, in order, typed, null where missing."""
    known = set(lines.columns)
    fields: StructType = LINE
    return [
        (F.col(field.name) if field.name in known else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in fields
        if field.name != CORRUPT
    ]


_NO_LIMITS = Settings(
    storage="journal",
    max_hops=_MAX_HOPS,
    default_ttl_ms=_TTL_MS,
    default_call_budget=_CALLS,
    rate_limit=RateLimitConfig(enabled=False),
    circuit_breaker=CircuitBreakerConfig(enabled=False),
    backpressure=BackpressureConfig(enabled=False),
    qos=QosConfig(enabled=False),
)
