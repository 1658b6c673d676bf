"""The first stage: who would have been within their rate limit.

Rows of one sender come one after another, in order of `seq`. Its window is all that is kept, and
goes on from one batch to the next.

Executors run this: what has to be unpacked there is imported inside.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.loud import by_key
from waypost.pipeline.replay.places import Relays, numbers_of, runs
from waypost.pipeline.spark.executors import unpacked

if TYPE_CHECKING:
    from numpy.typing import NDArray


def judge_senders(rows: DataFrame, told: dict[str, Any]) -> DataFrame:
    """`rows` of arrivals with `passed`: whether they are within their sender's rate limit."""
    schema = StructType([*rows.schema.fields, StructField("passed", BooleanType())])
    return by_key(rows).mapInArrow(partial(_judge, told=told), schema)


def _judge(batches: Iterable[pa.RecordBatch], told: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    unpacked()
    window = SenderWindow(SettingsInForce(told), Relays(told["keys"]))
    for batch in batches:
        passed = np.ones(batch.num_rows, dtype=bool)
        numbers = numbers_of(batch.column("place").to_numpy())
        for start, end in pairwise(runs(numbers)):
            rows = batch.slice(start, end - start)
            window.judge(int(numbers[start]), rows, passed[start:end])
        yield batch.append_column("passed", pa.array(passed))


class SenderWindow:
    """The rate window of the sender whose rows come now."""

    def __init__(self, in_force: SettingsInForce, relays: Relays) -> None:
        self._in_force = in_force
        self._relays = relays
        self._key = -1

    def judge(self, key: int, rows: pa.RecordBatch, passed: "NDArray[np.bool_]") -> None:
        """Fill in `passed`, which is all true so far, for rows of the sender that is `key`."""
        if key != self._key:
            self._begin(key, rows.column("sender")[0].as_py())
        seqs = rows.column("seq").to_numpy()
        if seqs[0] >= self._in_force.until_seq:
            self._in_force.reach(int(seqs[0]))
        one_era = seqs[-1] < self._in_force.until_seq
        if not (one_era and self._same_window and self._all_pass(rows)):
            self._judge_each(rows, passed)

    def _begin(self, key: int, sender: str) -> None:
        from waypost.policy.rate_limits import RateWindows

        self._key, self._sender = key, sender
        self._windows = RateWindows()
        self._recent: list[int] | None = None
        """Instead of `_windows`, as long as nobody had to look closely."""
        self._publish, self._passed = "", True
        relay = self._relays.of(key)
        self._in_force.follow(relay)
        self._same_window = self._in_force.one_rate_window(relay)

    def _all_pass(self, rows: pa.RecordBatch) -> bool:
        """Whether no publish has as many as the limit before it in its window."""
        from waypost.policy.rate_limits import resolve_limit

        sender, config = self._sender, self._in_force.settings.rate_limit
        limit, window_ms = resolve_limit(sender, config), config.window_secs * 1000
        part, at_ms = rows.column("part").to_numpy(), rows.column("at_ms").to_numpy()
        if part[0] != 0:
            return False  # it belongs to a publish of the batch before
        if self._recent is None:
            self._recent = self._windows.snapshot(int(at_ms[0]), window_ms).get(sender, [])
        instants = np.concatenate([np.array(self._recent, dtype=np.int64), at_ms[part == 0]])
        if config.enabled and len(instants) > limit:
            apart = instants[limit:] - instants[:-limit]
            if (apart < window_ms).any():
                return False
        self._recent = instants[instants > at_ms[-1] - window_ms].tolist()
        self._publish, self._passed = rows.column("publish")[-1].as_py(), True
        return True

    def _judge_each(self, rows: pa.RecordBatch, passed: "NDArray[np.bool_]") -> None:
        from waypost.policy.admission import admit_sender
        from waypost.policy.rate_limits import RateWindows

        sender, in_force = self._sender, self._in_force
        if self._recent is not None:
            self._windows = RateWindows()
            for at_ms in self._recent:
                self._windows.record(sender, at_ms)
            self._recent = None
        columns = (rows.column(name).to_pylist() for name in ("seq", "at_ms", "part", "publish"))
        for place, (seq, at_ms, part, publish) in enumerate(zip(*columns, strict=True)):
            if part == 0 or publish != self._publish:
                if seq >= in_force.until_seq:
                    in_force.reach(seq)
                verdict = admit_sender(sender, self._windows, in_force.settings, at_ms)
                self._publish, self._passed = publish, verdict.reason is None
                if self._passed:
                    self._windows.record(sender, at_ms)
            if not self._passed:
                passed[place] = False
