"""The third stage: what each inbox would have taken.

Steps of one endpoint come one after another, in order of `seq`. Executors run this: what has to be
unpacked there is imported inside.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from waypost.pipeline.replay.arrivals import overdrawn
from waypost.pipeline.replay.in_force import SettingsInForce
from waypost.pipeline.replay.loud import by_key
from waypost.pipeline.replay.places import Relays, numbers_of, runs, seqs_of
from waypost.pipeline.replay.steps import Step
from waypost.pipeline.spark.executors import unpacked

_NUMBERS = ("at_ms", "step", "size", "tier", "ttl_ms")
_TEXTS = ("letter", "sender", "deferred", "budget")
_BUDGET = ("hop_count", "max_hops", "calls", "cycle")
_TOLD = ("place", "at_ms", "sender", "tier", "old_reason")


def judge_inboxes(
    steps: DataFrame, told: dict[str, Any], shown: tuple[str, ...], *, everything: bool
) -> DataFrame:
    """Arrivals among `steps` with their `place`, `at_ms`, `sender`, `tier`, `old_reason`, what is
    `shown`, and `new_reason`: why they would have been refused, or empty. All of them with
    `everything`, else those that would have been decided otherwise.

    `steps` are from `steps.py`, with their `place` and the `hops` of their regime.
    """
    doubtful = overdrawn(F.least("max_hops", "hops"))
    rows = steps.select(
        *("place", "at_ms", "step", "letter", "sender", "deferred", "old_reason", *shown),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("size", "tier", "ttl_ms")),
        F.when(doubtful, F.struct(*_BUDGET)).alias("budget"),
    )
    kept = (*_TOLD, *shown)
    reason = StructField("new_reason", StringType())
    schema = StructType([*(rows.schema[name] for name in kept), reason])
    judge = partial(_judge, told=told, kept=kept, everything=everything)
    return by_key(rows).mapInArrow(judge, schema)


def _judge(
    batches: Iterable[pa.RecordBatch],
    told: dict[str, Any],
    kept: tuple[str, ...],
    everything: bool,
) -> Iterator[pa.RecordBatch]:
    unpacked()
    from waypost.pipeline.replay.inbox import Inbox

    in_force, relays = SettingsInForce(told), Relays(told["keys"])
    inbox, current = None, -1
    for batch in batches:
        numbers = numbers_of(batch.column("place").to_numpy())
        rows = _rows(batch)
        reasons: list[str] = []
        for start, end in pairwise(runs(numbers)):
            if inbox is None or numbers[start] != current:
                current = int(numbers[start])
                inbox = Inbox(in_force, relays.of(current))
            reasons.extend(inbox.follow(islice(rows, end - start)))
        arrived = pa.array(batch.column("step").to_numpy() <= Step.BURIED)
        arrivals = batch.select(kept).filter(arrived)
        arrivals = arrivals.append_column("new_reason", pa.array(reasons, pa.string()))
        if not everything:
            arrivals = arrivals.filter(
                pc.not_equal(arrivals.column("old_reason"), arrivals.column("new_reason"))
            )
        yield arrivals


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """What `Inbox.follow` reads."""
    seqs = seqs_of(batch.column("place").to_numpy()).tolist()
    numbers = (batch.column(name).to_numpy().tolist() for name in _NUMBERS)
    texts = (batch.column(name).to_pylist() for name in _TEXTS)
    return zip(seqs, *numbers, *texts, strict=True)
