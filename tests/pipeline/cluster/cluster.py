"""A real Spark cluster on this machine, whose executors do not have Waypost.

A master and two workers from the installed pyspark, each a process of its own, and a Spark Connect
server that uses them. Executors run the bare interpreter with pyspark and PyArrow and nothing else.
"""

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.eventually import eventually_blocking

SPARK_HOME = Path(pyspark.__file__).parent
STARTS_WITHIN_S = 120.0
STOCK_PACKAGES = (
    "pyspark",
    "py4j",
    "pyarrow",
    "pyarrow.libs",
    "numpy",
    "numpy.libs",
    "pandas",
    "pandas.libs",
    "dateutil",
    "six.py",
    "pytz",
    "tzdata",
    "zstandard",
    "grpc",
    "grpc_status",
    "google",
    "googleapis_common_protos",
)


def stock_python(directory: Path) -> Path:
    """Create an interpreter with the packages of a stock cluster, without Waypost and msgspec."""
    site = directory / "site"
    site.mkdir(parents=True)
    packages = Path(sysconfig.get_paths()["purelib"])
    for name in STOCK_PACKAGES:
        if (packages / name).exists():
            (site / name).symlink_to(packages / name)
    interpreter = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{site}:$PYTHONPATH"\nexec "{interpreter}" -s "$@"\n'
    )
    python.chmod(0o755)
    return python


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Run a master and two workers with one core each; yields the master's URL."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(
            _daemon(
                directory / "master",
                "org.apache.spark.deploy.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--webui-port",
                "0",
            )
        )
        url = _wait_for(master, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            worker = stack.enter_context(
                _daemon(
                    directory / f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    "0",
                    "--webui-port",
                    "0",
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(directory / f"work-{number}"),
                    url,
                )
            )
            _wait_for(worker, r"(Successfully registered) with master")
        yield url


@contextlib.contextmanager
def connect_server(directory: Path, *arguments: str) -> Iterator[str]:
    """Run a Spark Connect server; yields the address for clients."""
    port = 15_000 + os.getpid() % 10_000
    submit = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.ui.enabled=false",
        *arguments,
        "spark-internal",
    ]
    with _process(directory, submit) as log:
        _wait_for(log, r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"


def _daemon(directory: Path, *command: str) -> contextlib.AbstractContextManager[Path]:
    return _process(directory, [str(SPARK_HOME / "bin" / "spark-class"), *command])


@contextlib.contextmanager
def _process(directory: Path, command: list[str]) -> Iterator[Path]:
    directory.mkdir(parents=True)
    log = directory / "log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=directory
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    """Return the first group of `pattern` once it is in the log."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = re.findall(pattern, log.read_text(errors="replace"))
        return bool(found)

    eventually_blocking(is_there, f"{pattern!r} in {log}", timeout_s=STARTS_WITHIN_S)
    return found[0]
