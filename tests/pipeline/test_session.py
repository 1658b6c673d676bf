"""The options of the JVM. Each test starts a process, because a JVM is configured only once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waypost.pipeline.journal.volume import estimate_events

pytestmark = pytest.mark.spark

PRINT_JVM = """
import json, os, sys
from waypost.pipeline.spark.session import SparkChoice, spark_session

choice = SparkChoice(master="local[1]", conf=json.loads(sys.argv[1]), events=1000)
with spark_session(choice, os.environ) as spark:
    lang = spark._jvm.java.lang
    collectors = lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    heap_mb = lang.Runtime.getRuntime().maxMemory() >> 20
    options = list(lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    classes = spark.conf.get("spark.sql.codegen.cache.maxEntries")
    print(json.dumps([[bean.getName() for bean in collectors], heap_mb, options, classes]))
"""
VFORK = "-Djdk.lang.Process.launchMechanism=VFORK"
CODE_ROOM = "-XX:ReservedCodeCacheSize=240m"


def jvm_of(conf: dict[str, str], environment: dict[str, str]) -> Any:
    """Return the garbage collectors of a session's JVM, its maximum heap in MiB, its options,
    and how many generated classes it keeps."""
    clean = {name: value for name, value in os.environ.items() if "JAVA_OPTIONS" not in name}
    clean.pop("JAVA_TOOL_OPTIONS", None)
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_JVM, json.dumps(conf)],
        env={**clean, **environment},
        capture_output=True,
        check=True,
    )
    return json.loads(printed.stdout.splitlines()[-1])


def test_the_jvm_gets_the_parallel_collector_and_a_heap_for_its_cores() -> None:
    collectors, heap_mb, options, classes = jvm_of({}, {})
    assert collectors == ["PS MarkSweep", "PS Scavenge"]
    assert heap_mb <= 1024 * max(2, os.cpu_count() or 1)
    assert "-XX:TieredStopAtLevel=1" in options  # there is little to do
    assert CODE_ROOM in options
    assert (VFORK in options) == (sys.platform == "linux")
    assert int(classes) >= 1000


@pytest.mark.parametrize("by_environment", [False, True])
def test_another_collector_compiler_and_heap_can_be_set(by_environment: bool) -> None:
    wanted = "-XX:+UseSerialGC -XX:TieredStopAtLevel=3 -Djdk.lang.Process.launchMechanism=FORK"
    wanted += " -XX:ReservedCodeCacheSize=64m"
    conf = {"spark.driver.memory": "600m", "spark.sql.codegen.cache.maxEntries": "7"}
    if not by_environment:
        conf["spark.driver.extraJavaOptions"] = wanted
    environment = {"JAVA_TOOL_OPTIONS": wanted} if by_environment else {}
    collectors, heap_mb, options, classes = jvm_of(conf, environment)
    assert collectors == ["Copy", "MarkSweepCompact"]
    assert 500 < heap_mb <= 600
    assert not {"-XX:TieredStopAtLevel=1", VFORK, CODE_ROOM}.intersection(options)
    assert classes == "7"


@pytest.mark.parametrize(
    ("job", "megabytes", "is_small"),
    [("build", 0, True), ("build", 150, False), ("backtest", 150, True), ("backtest", 2000, False)],
)
def test_a_job_on_a_large_lake_gets_the_optimising_compiler(
    tmp_path: Path, job: str, megabytes: int, is_small: bool
) -> None:
    events = tmp_path / "lake" / "events" / "part.parquet"
    events.parent.mkdir(parents=True)
    events.touch()
    os.truncate(events, megabytes << 20)  # a sparse file; without a manifest it is not read
    lake = str(tmp_path / "lake")
    command = [sys.executable, "-m", "waypost", "pipeline", job, "--lake", lake]
    done = subprocess.run(
        [*command, "--conf", "spark.driver.extraJavaOptions=-XX:+PrintCommandLineFlags"],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert b"no lake at" in done.stderr
    assert (b"-XX:TieredStopAtLevel=1" in done.stdout) == is_small
    assert (b"-XX:Tier4InvocationThreshold" in done.stdout) != is_small


def test_the_events_of_a_job_are_estimated_from_its_files(tmp_path: Path) -> None:
    journal, lake = tmp_path / "relay" / "journal", tmp_path / "lake" / "events"
    journal.mkdir(parents=True)
    lake.mkdir(parents=True)
    for path, size in ((journal / "1.jsonl", 3 << 20), (journal / "2.open", 3 << 20)):
        path.touch()
        os.truncate(path, size)
    one = estimate_events([str(tmp_path / "relay")], None)
    assert one is not None
    assert 10_000 < one < 40_000
    assert estimate_events([f"name={journal}"], str(tmp_path / "lake")) == one
    (lake / "day").mkdir()
    (lake / "day" / "part.parquet").write_bytes(bytes(1 << 20))
    both = estimate_events([str(tmp_path / "relay")], f"file://{tmp_path}/lake")
    assert both is not None
    assert both > one
    trace = tmp_path / "mails.txt"
    trace.write_text("1 2 1000000\n" * 1000)
    assert 1000 < (estimate_events([], None, str(trace)) or 0) < 4000


def test_events_elsewhere_are_not_estimated(tmp_path: Path) -> None:
    assert estimate_events(["s3a://bucket/relay"], None) is None
    assert estimate_events([str(tmp_path)], "hdfs:///lake") is None
