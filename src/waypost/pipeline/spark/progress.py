"""How far Spark is, told by Spark itself: tasks done of the tasks it has begun.

In this process and on a cluster the status tracker is asked a few times a second; a Spark Connect
server reports by itself.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from pyspark.sql import SparkSession

_PERIOD_S = 0.2


class TasksDone(msgspec.Struct, frozen=True):
    """Of the stages now under way: tasks that are done, and all of them."""

    done: int
    total: int


Show = Callable[[TasksDone], None]


@contextlib.contextmanager
def watched(spark: SparkSession, show: Show) -> Iterator[None]:
    """Call `show` while the block runs."""
    over_connect = not hasattr(spark, "_jvm")
    with _reported(spark, show) if over_connect else _asked(spark, show):
        yield


@contextlib.contextmanager
def _asked(spark: SparkSession, show: Show) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def look() -> None:
        while not over.wait(_PERIOD_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                show(TasksDone(done, sum(stage.numTasks for stage in known)))

    watcher = threading.Thread(target=look, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def _reported(spark: Any, show: Show) -> Iterator[None]:
    def heard(stages: Any = (), **_: Any) -> None:
        known = list(stages or ())
        if known:
            show(
                TasksDone(
                    sum(stage.num_completed_tasks for stage in known),
                    sum(stage.num_tasks for stage in known),
                )
            )

    spark.registerProgressHandler(heard)
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)
