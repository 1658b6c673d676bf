"""The jobs on a real cluster whose executors do not have Waypost, and over Spark Connect."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.cluster.cluster import connect_server, standalone, stock_python
from waypost.pipeline.spark.session import SparkChoice
from waypost.simulate import SimulationOptions, simulate

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIGHTER = """{"reliability": {"rateLimit": {"maxPerWindow": 20}},
              "qos": {"tier1": {"maxEnvelopes": 5}}}"""
# Jobs here are too short for the optimising compiler to pay off.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FEW = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.extraJavaOptions": QUICK,
}

JOBS = """
import os, sys
from waypost.pipeline.tables.build import build
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.pipeline.spark.session import SparkChoice, spark_session
import msgspec

directory, journal, settings, choice = sys.argv[1:]
choice = msgspec.json.decode(choice, type=SparkChoice)
with spark_session(choice, os.environ) as spark:
    lake = open_lake(spark, directory + "/lake", create=True)
    answers = {
        "ingested": ingest(lake, parse_sources([journal])),
        "built": build(lake),
        "backtest": backtest(lake, settings.encode(), shortcut=False),
    }
sys.stdout.buffer.write(msgspec.json.encode(answers))
"""


def run_jobs(directory: Path, journal: Path, choice: SparkChoice) -> Any:
    """Return the results of the jobs there, run in their own process with one session."""
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [str(directory), str(journal), TIGHTER, msgspec.json.encode(choice).decode()]
    done = subprocess.run(
        [sys.executable, "-c", JOBS, *arguments], capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cluster") / "traffic"
    simulate(SimulationOptions(messages=600, out=out, agents=40, seed=5))
    return out


@pytest.fixture(scope="module")
def here(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the results of this machine alone."""
    return run_jobs(
        tmp_path_factory.mktemp("here"),
        journal,
        SparkChoice(master="local[2]", conf={**FEW, **SMALL}),
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("spark")
    python = stock_python(directory / "python")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYSPARK_PYTHON", str(python))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield stack.enter_context(standalone(directory / "cluster")), python


def test_a_standalone_cluster_gives_the_same_answers(
    journal: Path, here: Any, cluster: tuple[str, Path], tmp_path: Path
) -> None:
    master, _ = cluster
    there = run_jobs(tmp_path, journal, SparkChoice(master=master, conf={**FEW, **SMALL}))
    assert there == here
    assert here["backtest"]["differences"] > 0


def test_a_spark_connect_server_gives_the_same_answers(
    journal: Path, here: Any, cluster: tuple[str, Path], tmp_path: Path
) -> None:
    master, python = cluster
    settings = {"spark.pyspark.python": str(python), **SMALL}
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with connect_server(tmp_path / "server", "--master", master, *conf) as remote:
        there = run_jobs(tmp_path / "lake", journal, SparkChoice(remote=remote, conf=FEW))
    assert there == here


def test_executors_of_the_cluster_really_lack_waypost(cluster: tuple[str, Path]) -> None:
    _, python = cluster
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for package in ("waypost", "msgspec"):
        done = subprocess.run(
            [python, "-c", f"import {package}"], env=environment, capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in done.stderr
