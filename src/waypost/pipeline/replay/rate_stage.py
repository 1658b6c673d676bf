"""Stage 1, by sender: decides which publishes are within their sender's rate limit, and whether
they reach too many endpoints.

The rows of one sender are consecutive and in order of `seq`. Only the rate window of the current
sender is in memory; it carries over from one batch to the next.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from waypost.pipeline.replay.arrivals import (
    LIMITED,
    TOO_WIDE,
    replayable_arrivals,
    resolve_endpoints,
)
from waypost.pipeline.replay.keys import (
    KEY,
    KeySet,
    RelayIndex,
    partition_by_key,
    run_bounds,
    unpack,
)
from waypost.pipeline.replay.screening import Affected
from waypost.pipeline.replay.settings_timeline import SettingsInForce, SettingsTimeline
from waypost.pipeline.spark.executors import ShippedFunction
from waypost.policy.admission import admit_fan_out, admit_sender
from waypost.policy.rate_limits import RateWindows, network_window, resolve_limit
from waypost.policy.reserved_names import ANONYMOUS
from waypost.policy.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RateResult:
    """The result of stage 1: `rows` of `rate_stage`, and the `changed_pairs` of them."""

    senders: KeySet
    rows: DataFrame
    changed: pa.Table

    def passed(self, events: DataFrame) -> DataFrame:
        """Return all arrivals of `events` that pass this stage and have an endpoint."""
        replayed = self.rows.where("sender_reason = ''").drop("sender_reason", "sort_key")
        recorded = replayable_arrivals(events).where(~F.col("limited"))
        unaffected = self.senders.exclude(recorded, by="sender").select(*replayed.columns)
        return unaffected.unionByName(replayed).where(F.col("endpoint") != "")


def rate_stage(
    events: DataFrame, timeline: SettingsTimeline, affected: Affected, columns: Iterable[str]
) -> DataFrame:
    """Return the arrivals of the affected senders: `columns`, `sort_key` and `sender_reason`.

    `sender_reason` is why the whole publish is rejected; empty if its endpoints decide.
    """
    senders = affected.senders
    rows = replayable_arrivals(senders.select(events, by="sender"))
    if senders.count and affected.totals[LIMITED]:
        known = events.sparkSession.createDataFrame(affected.endpoints.select(KEY))
        rows = resolve_endpoints(rows, known)
    rows = rows.select(*columns, "sort_key", "origin")
    if not senders.count:
        return rows.drop("origin").withColumn("sender_reason", F.lit(""))
    decide = ShippedFunction(_decide, settings_data=timeline.for_executors(senders.first_ids))
    schema = StructType([*rows.schema.fields, StructField("sender_reason", StringType())])
    return partition_by_key(rows).mapInArrow(decide, schema).drop("origin")


def changed_pairs(rows: DataFrame) -> DataFrame:
    """Return the pairs (relay, sender, endpoint) whose arrivals now pass this stage, or no longer.

    `gained`: some of their arrivals pass that were rejected.
    """
    passed = F.col("sender_reason") == ""
    changed = rows.where(passed == F.col("limited"))
    pairs = changed.groupBy("relay", "sender", "endpoint")
    return pairs.agg(F.bool_or(passed).alias("gained"))


def _decide(
    batches: Iterable[pa.RecordBatch], settings_data: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    window = SenderWindow(SettingsInForce(settings_data), RelayIndex(settings_data["first_ids"]))
    for batch in batches:
        codes = np.zeros(batch.num_rows, dtype=np.int8)
        key_ids, _ = unpack(batch.column("sort_key").to_numpy())
        for start, end in pairwise(run_bounds(key_ids)):
            rows = batch.slice(start, end - start)
            window.decide(int(key_ids[start]), rows, codes[start:end])
        reasons = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_REASONS))
        yield batch.append_column("sender_reason", reasons.cast(pa.string()))


class SenderWindow:
    """The rate window of the current sender."""

    def __init__(self, in_force: SettingsInForce, relays: RelayIndex) -> None:
        self._in_force = in_force
        self._relays = relays
        self._key_id = -1

    def decide(self, key_id: int, rows: pa.RecordBatch, codes: "NDArray[np.int8]") -> None:
        """Set the code of a reason (`_REASONS`) for rows of sender `key_id` that are rejected.

        Messages of other partitions were counted there; whether they reach too many is recorded.
        """
        own = pc.is_null(rows.column("origin")).to_numpy(zero_copy_only=False)
        if not own.all():
            codes[_was_too_wide(rows)] = _TOO_WIDE_CODE
            if own.any():
                own_codes = np.zeros(int(own.sum()), dtype=np.int8)
                self.decide(key_id, rows.filter(pa.array(own)), own_codes)
                codes[own] = own_codes
            return
        if key_id != self._key_id:
            self._start(key_id, rows.column("sender")[0].as_py())
        seqs = rows.column("seq").to_numpy()
        if seqs[0] >= self._in_force.until_seq:
            self._in_force.advance(int(seqs[0]))
        one_period = seqs[-1] < self._in_force.until_seq
        if one_period and self._one_rate_window and self._all_pass(rows):
            codes[_too_wide(rows, self._in_force.settings)] = _TOO_WIDE_CODE
        else:
            self._decide_each(rows, codes)

    def _start(self, key_id: int, sender: str) -> None:
        self._key_id, self._sender = key_id, sender
        self._windows = RateWindows()
        self._recent: list[int] | None = None
        """The window as plain times, in place of `_windows`, until publishes are decided singly."""
        self._publish, self._passed = "", True
        relay = self._relays.relay_of(key_id)
        self._in_force.start(relay)
        # The networks of senders without a key have windows of their own.
        self._one_rate_window = sender != ANONYMOUS and self._in_force.has_one_rate_window(relay)

    def _all_pass(self, rows: pa.RecordBatch) -> bool:
        """Return whether no publish finds its window full; computed for all rows at once."""
        sender, config = self._sender, self._in_force.settings.rate_limit
        limit, window_ms = resolve_limit(sender, config), config.window_secs * 1000
        part, at_ms = rows.column("part").to_numpy(), rows.column("at_ms").to_numpy()
        if part[0] != 0:
            return False  # the rest of a publish that the last batch began
        if self._recent is None:
            self._recent = self._windows.snapshot(int(at_ms[0]), window_ms).get(sender, [])
        times = np.concatenate([np.array(self._recent, dtype=np.int64), at_ms[part == 0]])
        if config.enabled and len(times) > limit:
            gaps = times[limit:] - times[:-limit]
            if (gaps < window_ms).any():
                return False
        self._recent = times[times > at_ms[-1] - window_ms].tolist()
        self._publish, self._passed = rows.column("publish")[-1].as_py(), True
        return True

    def _decide_each(self, rows: pa.RecordBatch, codes: "NDArray[np.int8]") -> None:
        sender, in_force = self._sender, self._in_force
        if self._recent is not None:
            self._windows = RateWindows()
            for at_ms in self._recent:
                self._windows.record(sender, at_ms)
            self._recent = None
        columns = (rows.column(name).to_pylist() for name in _DECIDED_BY)
        rows_of = enumerate(zip(*columns, strict=True))
        for index, (seq, at_ms, part, publish, parts, old, network) in rows_of:
            if part == 0 or publish != self._publish:
                if seq >= in_force.until_seq:
                    in_force.advance(seq)
                verdict = admit_sender(sender, self._windows, in_force.settings, at_ms, network)
                self._publish, self._passed = publish, verdict.reason is None
                if self._passed:
                    self._windows.record(sender, at_ms)
                    if network:
                        self._windows.record(network_window(sender, network), at_ms)
            if not self._passed:
                codes[index] = _LIMITED_CODE
            elif old == TOO_WIDE or admit_fan_out(parts, in_force.settings):
                codes[index] = _TOO_WIDE_CODE


def _too_wide(rows: pa.RecordBatch, settings: Settings) -> "NDArray[np.bool_]":
    """Return which rows are rejected for their fan-out, as `admit_fan_out` decides.

    One that was rejected for it stays so: which endpoints it matched was not recorded.
    """
    wide = _was_too_wide(rows)
    if settings.max_fanout:
        wide = wide | (rows.column("parts").to_numpy() > settings.max_fanout)
    return wide


def _was_too_wide(rows: pa.RecordBatch) -> "NDArray[np.bool_]":
    wide: NDArray[np.bool_]
    wide = pc.equal(rows.column("old_reason"), TOO_WIDE).to_numpy(zero_copy_only=False)
    return wide


_REASONS = ("", LIMITED, TOO_WIDE)
_LIMITED_CODE, _TOO_WIDE_CODE = 1, 2
_DECIDED_BY = ("seq", "at_ms", "part", "publish", "parts", "old_reason", "network")
