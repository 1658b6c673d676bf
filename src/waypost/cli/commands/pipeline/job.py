"""A running Spark job: its session, and on a terminal a progress line."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from waypost.pipeline.spark.progress import TaskProgress
    from waypost.pipeline.spark.session import Session, SparkChoice


class SparkJob:
    """The Spark session of a job, and the progress of its steps."""

    def __init__(self, spark: "Session", progress: Progress) -> None:
        self.spark = spark
        self._progress = progress

    @contextlib.contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Show `description` and the progress of Spark's tasks during the block."""
        from waypost.pipeline.spark.progress import report_progress

        line = self._progress.add_task(description, total=None, tasks="")

        def show(now: "TaskProgress") -> None:
            self._progress.update(
                line, completed=now.done, total=now.total, tasks=f"{now.done}/{now.total} tasks"
            )

        try:
            if self._progress.disable:
                yield
            else:
                with report_progress(self.spark, show):
                    yield
        finally:
            self._progress.remove_task(line)


@contextlib.contextmanager
def start_job(choice: "SparkChoice") -> Iterator[SparkJob]:
    """Start Spark, and stop it after the block."""
    from waypost.cli.rendering.console import console
    from waypost.pipeline.spark.session import spark_session

    terminal = console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal or choice.verbose,
    )
    with progress, contextlib.ExitStack() as stack:
        line = progress.add_task("starting Spark", total=None, tasks="")
        session = stack.enter_context(spark_session(choice, os.environ))
        progress.remove_task(line)
        yield SparkJob(session, progress)
