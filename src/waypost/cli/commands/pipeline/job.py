"""A running Spark job: its session, and on a terminal a progress line."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from waypost.pipeline.journal.sources import JournalSource
    from waypost.pipeline.lake.lake import Lake
    from waypost.pipeline.spark.progress import TaskProgress
    from waypost.pipeline.spark.session import ServerState, Session, SparkChoice


class SparkJob:
    """The Spark session of a job, and the progress of its steps."""

    def __init__(self, spark: "Session", progress: "Progress", *, on_server: bool) -> None:
        self.spark = spark
        self._progress = progress
        self._on_server = on_server

    def open_lake(self, given: str, *, create: bool = False) -> "Lake":
        """Open a lake; with `create`, a missing one is empty."""
        from waypost.pipeline.lake.lake import open_lake

        return open_lake(self.spark, self.path(given), create=create)

    def path(self, given: str) -> str:
        """Return a path as Spark finds it: a server works in another directory."""
        is_relative = not given.startswith("/") and ":" not in given
        return os.path.abspath(given) if self._on_server and is_relative else given

    def journals(self, sources: "list[JournalSource]") -> "list[JournalSource]":
        """Return journals with paths as Spark finds them."""
        return [source._replace(path=self.path(source.path)) for source in sources]

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
    """Start Spark and stop it after the block, or use the server of `waypost pipeline serve`."""
    from msgspec.structs import replace
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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
        server = stack.enter_context(_shared_server()) if choice.share_server else None
        session = stack.enter_context(spark_session(replace(choice, server=server), os.environ))
        progress.remove_task(line)
        yield SparkJob(session, progress, on_server=server is not None)


@contextlib.contextmanager
def _shared_server() -> "Iterator[ServerState | None]":
    from waypost.cli.rendering.console import note
    from waypost.pipeline.spark.server import find_server

    with find_server(os.environ, note) as server:
        if server is not None:
            note(f"using the Spark server of `waypost pipeline serve` (pid {server.pid})")
        yield server
