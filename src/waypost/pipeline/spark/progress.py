"""Reports the progress of Spark jobs: completed tasks and all tasks of the active stages.

In this process and on a cluster, Spark's status tracker is polled a few times a second. A Spark
Connect server sends progress on its own.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from pyspark.sql import SparkSession

_PERIOD_S = 0.2


class TaskProgress(msgspec.Struct, frozen=True):
    """Completed tasks, and all tasks, of the active stages."""

    done: int
    total: int


OnProgress = Callable[[TaskProgress], None]


@contextlib.contextmanager
def report_progress(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Call `on_progress` repeatedly while the block runs."""
    over_connect = not hasattr(spark, "_jvm")
    with _subscribe(spark, on_progress) if over_connect else _poll(spark, on_progress):
        yield


@contextlib.contextmanager
def _poll(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_PERIOD_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                on_progress(TaskProgress(done, sum(stage.numTasks for stage in known)))

    poller = threading.Thread(target=poll, name="spark-progress", daemon=True)
    poller.start()
    try:
        yield
    finally:
        ended.set()
        poller.join()


@contextlib.contextmanager
def _subscribe(spark: Any, on_progress: OnProgress) -> Iterator[None]:
    def on_stages(stages: Any = (), **_: Any) -> None:
        known = list(stages or ())
        if known:
            done = sum(stage.num_completed_tasks for stage in known)
            on_progress(TaskProgress(done, sum(stage.num_tasks for stage in known)))

    spark.registerProgressHandler(on_stages)
    try:
        yield
    finally:
        spark.removeProgressHandler(on_stages)
