"""One Spark session for a job: in this process, on a cluster, or over Spark Connect."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.spark.executors import shipped
from waypost.pipeline.spark.jvm import require_java
from waypost.pipeline.spark.partitioning import FITTED, PARTS

Session = SparkSession
LOCAL = "local[*]"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Most code of a job is over before it has paid for being compiled a second time, which took a third
# of all work: only what runs 10 times longer than the JVM's own thresholds is.
_JVM = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# Jobs want throughput; nobody waits for a single pause. Java refuses to start with two collectors.
_COLLECTOR = "-XX:+UseParallelGC"
_ASKS_FOR_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# Of the session, so that they hold on a cluster and over Connect alike.
_SESSION = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days, wherever a job runs
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, not a null
    "spark.sql.adaptive.enabled": "true",
    # A part of a shuffle is at most so large as a rule, and then joined by hash, without sorting.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    # What is found to be so small is sent to everybody (10 MB unless told), and nobody sorts.
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # what others read best, too
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # So many days are written at the same time by a task; with more, it sorts by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Groups are many here: a small map in front of the map only makes more code to compile.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Lists of a group are added to in a hash map; with more groups than this (128 unless told)
    # rows are sorted first.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Batches end by their rows, which have no payloads here. Watching their bytes, too, would
    # measure them after every row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}


class SparkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs: `remote` (Spark Connect) or `master`, with further settings of Spark."""

    master: str = LOCAL
    remote: str | None = None
    conf: Mapping[str, str] = {}
    verbose: bool = False
    """Show Spark's own log."""

    @property
    def in_this_process(self) -> bool:
        """Whether executors share this machine, this Python and these packages."""
        return self.remote is None and self.master.startswith("local")


@contextlib.contextmanager
def spark_session(
    choice: SparkChoice, environment: MutableMapping[str, str]
) -> Iterator[SparkSession]:
    """A session that ends with the block. Raises `SparkUnavailable`.

    `environment` is `os.environ`: where Java is found, and where Spark is told which Python to use.
    """
    remote = choice.remote
    session = _connected(remote, choice) if remote else _started(choice, environment)
    try:
        with contextlib.nullcontext() if choice.in_this_process else shipped(session):
            yield session
    finally:
        session.stop()


def _connected(remote: str, choice: SparkChoice) -> SparkSession:
    builder = SparkSession.builder.remote(remote)
    for name, value in {**_SESSION, **choice.conf}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.version  # noqa: B018 - the first word with the server
    except Exception as problem:
        raise SparkUnavailable(
            f"no Spark Connect server answers at {remote}: {_first_line(problem)}"
        ) from problem
    return session


def _started(choice: SparkChoice, environment: MutableMapping[str, str]) -> SparkSession:
    require_java(environment)
    if choice.in_this_process:
        # Spark would take whatever `python3` is; it looks nowhere else for this.
        environment["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(choice.master).appName("waypost")
    for name, value in _settings(choice, environment).items():
        builder = builder.config(name, value)
    try:
        with _quiet_launch(choice.verbose):
            return builder.getOrCreate()
    except Exception as problem:
        raise SparkUnavailable(
            f"Spark could not be started with master {choice.master}: {_first_line(problem)}"
            " (--spark-log shows what it has to say)"
        ) from problem


def _settings(choice: SparkChoice, environment: Mapping[str, str]) -> dict[str, str]:
    settings = {
        **_SESSION,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Where in Python a column was made: asked for with each, and nobody here wants to know.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **_of_this_process(choice),
        **choice.conf,
    }
    own = [
        *(_jvm_options(settings, environment) if choice.in_this_process else ()),
        *(() if choice.verbose else (f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",)),
    ]
    # What somebody asked for comes last, where it counts.
    options = " ".join([*own, settings.get(_JAVA_OPTIONS, "")]).strip()
    return {**settings, _JAVA_OPTIONS: options} if options else settings


def _jvm_options(settings: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    asked = [settings.get(_JAVA_OPTIONS, ""), *(environment.get(n, "") for n in _JAVA_VARIABLES)]
    has_collector = any(_ASKS_FOR_COLLECTOR.search(options) for options in asked)
    return [_JVM] if has_collector else [_JVM, _COLLECTOR]


def _of_this_process(choice: SparkChoice) -> dict[str, str]:
    if not choice.in_this_process:
        return {}
    cores = os.cpu_count() or 1
    return {
        "spark.driver.memory": f"{_driver_memory_mb(cores)}m",
        "spark.driver.host": "127.0.0.1",  # nobody else needs to reach it
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(2 * cores),
        FITTED: str(PARTS not in choice.conf).lower(),
    }


def _driver_memory_mb(cores: int) -> int:
    """In local mode the driver does all the work: 1 GiB for each core, at least 2, as far as a
    third of the machine goes. Java takes what it is given, and was no quicker with four times as
    much."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024)
    except (ValueError, OSError):
        return 2048
    return max(1024, min(1024 * max(2, cores), total // 3))


@contextlib.contextmanager
def _quiet_launch(verbose: bool) -> Iterator[None]:
    """Keep what the JVM prints on its own off the terminal: it inherits descriptor 2."""
    if verbose:
        yield
        return
    kept = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
