"""The options of the JVM. Each test starts a process, because a JVM is configured only once."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.spark

PRINT_JVM = """
import json, os, sys
from waypost.pipeline.spark.session import SparkChoice, spark_session

choice = SparkChoice(master="local[1]", conf=json.loads(sys.argv[1]))
with spark_session(choice, os.environ) as spark:
    lang = spark._jvm.java.lang
    collectors = lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    heap_mb = lang.Runtime.getRuntime().maxMemory() >> 20
    print(json.dumps([[bean.getName() for bean in collectors], heap_mb]))
"""


def jvm_of(conf: dict[str, str], environment: dict[str, str]) -> Any:
    """Return the garbage collectors of a session's JVM, and its maximum heap in MiB."""
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
    collectors, heap_mb = jvm_of({}, {})
    assert collectors == ["PS MarkSweep", "PS Scavenge"]
    assert heap_mb <= 1024 * max(2, os.cpu_count() or 1)


@pytest.mark.parametrize("by_environment", [False, True])
def test_another_collector_and_heap_can_be_set(by_environment: bool) -> None:
    collector = "-XX:+UseSerialGC"
    conf = {"spark.driver.memory": "600m"}
    if not by_environment:
        conf["spark.driver.extraJavaOptions"] = collector
    environment = {"JAVA_TOOL_OPTIONS": collector} if by_environment else {}
    collectors, heap_mb = jvm_of(conf, environment)
    assert collectors == ["Copy", "MarkSweepCompact"]
    assert 500 < heap_mb <= 600
