"""Starts or joins the Spark session of a job: local, on a cluster, or over Spark Connect.

Rule 1  What a job writes is as private as the journal it was made from: files and directories of
        the owner only, scratch files included.
Rule 2  The ports of a local session listen on loopback and require a secret.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.files import LINE_MAX_BYTES, LOCAL_PATHS, private_files
from waypost.pipeline.spark.cache import archive_path, cache_directory, is_complete
from waypost.pipeline.spark.connection import join
from waypost.pipeline.spark.executors import ship_packages
from waypost.pipeline.spark.java import (
    JAVA_VARIABLES,
    QUICK_COMPILER_EVENTS_MAX,
    QUICK_COMPILER_REPLAY_EVENTS_MAX,
    Java,
    java_options,
    require_java,
)
from waypost.pipeline.spark.partitioning import FIT_SHUFFLES, INITIAL_PARTITIONS

Session = SparkSession
LOCAL = "local[*]"
SCRATCH = "spark.local.dir"
SAME_MACHINE = "spark.waypost.sameMachine"
"""Spark setting: whether a Spark Connect server is the one of `waypost pipeline serve`."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PUSHED_NAMES_MAX = 200
"""Names that a query looks for in files one by one, to skip pages without any of them."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Session settings, so that they apply on a cluster and over Connect alike.
_SESSION = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days, whatever the machine's time zone
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, not a null
    "spark.sql.adaptive.enabled": "true",
    # Shuffle partitions of at most this size are joined by hash, without sorting.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    # Broadcast a join side that turns out to be this small (Spark's default is 10 MB).
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.pushdown.inFilterThreshold": str(PUSHED_NAMES_MAX),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # best supported by other readers
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Days that a task writes at the same time; with more, it sorts by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # With many groups, the small first-level map only adds code to compile.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Groups whose lists are collected in a hash map; with more (128 by default), rows are sorted
    # first.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Limit Arrow batches by rows only: rows have no payloads here, and a limit in bytes would be
    # checked after every row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

CREDENTIALS = {
    "AWS_SKIP_SIGNATURE": (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "GOOGLE_SKIP_SIGNATURE": (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ),
    "AZURE_SKIP_SIGNATURE": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
}
"""The variable that makes requests to a store unsigned, and those of its credentials."""


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """A Spark server on this machine: its port on loopback, its token, its process and versions."""

    port: int
    token: str
    pid: int
    build: str
    local_paths: bool = False


class SparkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs: `remote` (Spark Connect) or `master`, and additional Spark settings."""

    master: str = LOCAL
    remote: str | None = None
    conf: Mapping[str, str] = {}
    verbose: bool = False
    """Show Spark's own log."""
    share_server: bool = False
    """Use the server of `waypost pipeline serve` if there is one: `cli` looks for it."""
    server: ServerState | None = None
    """A running server of this machine, instead of a session of its own."""
    events: int | None = None
    """About how many events the job reads, if known: Java's compiler is chosen by it."""
    quick_compiler_events_max: int = QUICK_COMPILER_EVENTS_MAX
    """Events up to which the job ends before optimising its code has paid off."""

    @property
    def in_this_process(self) -> bool:
        """Return whether executors share this machine, its Python and its packages."""
        return self.remote is None and self.master.startswith("local")

    def for_stream(self, settings: Mapping[str, str]) -> "SparkChoice":
        """Return the same choice for a job without an end, with settings that the user's override.

        It would occupy the server of `waypost pipeline serve` for as long as it runs, and it reads
        more than there is now.
        """
        conf = {**settings, **self.conf} if self.in_this_process else self.conf
        return msgspec.structs.replace(self, share_server=False, events=None, conf=conf)

    def for_replay(self) -> "SparkChoice":
        """Return the same choice for a backtest, which does less with each event than a build."""
        bound = QUICK_COMPILER_REPLAY_EVENTS_MAX
        return msgspec.structs.replace(self, quick_compiler_events_max=bound)


@contextlib.contextmanager
def spark_session(
    choice: SparkChoice, environment: MutableMapping[str, str]
) -> Iterator[SparkSession]:
    """Open a session that ends with the block. Raises `SparkUnavailable`.

    `environment` is `os.environ`: Java is looked up there, and Spark's Python is set there. So is
    what keeps the credentials of the machine from being used.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_configured_credentials(environment))
        if choice.remote:
            session = _connect(choice.remote, choice)
        elif choice.server:
            session = stack.enter_context(join(choice.server, environment))
        else:
            scratch = stack.enter_context(_scratch_directory(choice, environment))
            session = _start(choice, environment, scratch)
        stack.callback(session.stop)
        if not choice.in_this_process:
            stack.enter_context(ship_packages(session))
        yield session


@contextlib.contextmanager
def only_configured_credentials(environment: MutableMapping[str, str]) -> Iterator[None]:
    """During the block, let `deltalake` reach object stores with the user's credentials, or none.

    Without any, it would ask the metadata service of the machine for those of its role: a request
    that no one has asked for. The user's own choice in one of these variables is kept.
    """
    unsigned = [
        variable
        for variable, credentials in CREDENTIALS.items()
        if not any(name in environment for name in (variable, *credentials))
    ]
    environment.update(dict.fromkeys(unsigned, "true"))
    try:
        yield
    finally:
        for variable in unsigned:
            environment.pop(variable, None)


def _connect(remote: str, choice: SparkChoice) -> SparkSession:
    builder = SparkSession.builder.remote(remote)
    for name, value in {**_SESSION, **choice.conf}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.version  # noqa: B018 - the first request to the server
    except Exception as problem:
        raise SparkUnavailable(
            f"no Spark Connect server at {remote}: {_first_line(problem)}"
        ) from problem
    return session


def on_this_machine(spark: SparkSession) -> bool:
    """Return whether the session and its executors see the files that this process sees."""
    return not is_remote() or spark.conf.get(SAME_MACHINE, "") == "true"


def has_local_paths(spark: SparkSession) -> bool:
    """Return whether Spark's default file system is that of this machine."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS", "")).startswith("file:")


@contextlib.contextmanager
def _scratch_directory(
    choice: SparkChoice, environment: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield the setting of a private directory for shuffles and spilled rows, and delete it.

    A directory that the user has named is used as it is, and so is that of a cluster's machines.
    """
    if not choice.in_this_process or SCRATCH in choice.conf or "SPARK_LOCAL_DIRS" in environment:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="waypost-spark-", ignore_cleanup_errors=True) as path:
        yield {SCRATCH: path}


def _start(
    choice: SparkChoice, environment: MutableMapping[str, str], scratch: Mapping[str, str]
) -> SparkSession:
    java = require_java(environment)
    if choice.in_this_process:
        # The only way to tell Spark; it would use `python3` from the PATH.
        environment["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(choice.master).appName("waypost")
    for name, value in {**scratch, **_settings(choice, environment, java)}.items():
        builder = builder.config(name, value)
    try:
        # The JVM and Python's workers inherit it.
        with private_files(), _quiet_launch(choice.verbose):
            session = builder.getOrCreate()
        session.conf.set(LOCAL_PATHS, str(has_local_paths(session)).lower())
    except Exception as problem:
        raise SparkUnavailable(
            f"Spark did not start with master {choice.master}: {_first_line(problem)}"
            " (--spark-log shows Spark's own log)"
        ) from problem
    return session


def _settings(choice: SparkChoice, environment: Mapping[str, str], java: Java) -> dict[str, str]:
    settings = {
        **_SESSION,
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Spark skips longer lines; it would hold a line of any length in memory.
        "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": str(LINE_MAX_BYTES),
        # Generated classes that a session keeps: a run has about 500, and Spark keeps 100.
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Skips recording the Python call site of every column expression.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **_local_settings(choice),
        **choice.conf,
    }
    own = [
        *(_own_java_options(choice, environment, java) if choice.in_this_process else ()),
        *(() if choice.verbose else (f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",)),
    ]
    # The user's options come last, so that they take precedence.
    options = " ".join([*own, settings.get(JAVA_OPTIONS, "")]).strip()
    return {**settings, JAVA_OPTIONS: options} if options else settings


def _own_java_options(choice: SparkChoice, environment: Mapping[str, str], java: Java) -> list[str]:
    cache = cache_directory(environment)
    archive = archive_path(cache, java, environment) if cache is not None else None
    return java_options(
        java,
        given_java_options(choice.conf, environment),
        archive if archive is not None and is_complete(archive) else None,
        is_small=choice.events is not None and choice.events < choice.quick_compiler_events_max,
    )


def given_java_options(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the user's Java options, from wherever Java and Spark read them."""
    return " ".join([conf.get(JAVA_OPTIONS, ""), *(environment.get(n, "") for n in JAVA_VARIABLES)])


def _local_settings(choice: SparkChoice) -> dict[str, str]:
    if not choice.in_this_process:
        return {}
    cores = os.cpu_count() or 1
    return {
        "spark.driver.memory": f"{_driver_memory_mb(cores)}m",
        "spark.driver.host": "127.0.0.1",  # no other machine connects to it
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",  # other users of this machine; Spark makes up a secret
        "spark.sql.shuffle.partitions": str(2 * cores),
        FIT_SHUFFLES: str(INITIAL_PARTITIONS not in choice.conf).lower(),
    }


def _driver_memory_mb(cores: int) -> int:
    """Return 1 GiB for each core, at least 2 GiB, and at most a third of the machine's memory.

    In local mode the driver does all the work. Java uses all it may, and was not faster with four
    times as much.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024)
    except (ValueError, OSError):
        return 2048
    return max(1024, min(1024 * max(2, cores), total // 3))


@contextlib.contextmanager
def _quiet_launch(verbose: bool) -> Iterator[None]:
    """Keep the JVM's own messages off the terminal: it inherits file descriptor 2."""
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
