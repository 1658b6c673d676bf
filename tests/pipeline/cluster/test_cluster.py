"""The jobs on a real cluster whose executors know nothing of Waypost, and over Spark Connect."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.cluster.stock import connect_server, standalone, stock_python
from waypost.simulate import SimulationOptions, simulate

TIGHTER = b"""{"reliability": {"rateLimit": {"maxPerWindow": 20}},
               "qos": {"tier1": {"maxEnvelopes": 5}}}"""
LITTLE_MEMORY = ("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2")


class Answers(msgspec.Struct):
    """What `run` and `backtest` say, without what depends on where they ran."""

    ran: Any
    same: Any
    tighter: Any


def ask(directory: Path, journal: Path, *where: str) -> Answers:
    settings = directory / "tighter.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_bytes(TIGHTER)
    lake = str(directory / "lake")
    ran = waypost("run", "--journal", str(journal), "--lake", lake, *where)
    same = waypost("backtest", "--lake", lake, *where)
    tighter = waypost("backtest", "--lake", lake, "--settings", str(settings), *where)
    ran["report"].pop("path")
    return Answers(ran, same, tighter)


def waypost(*arguments: str) -> Any:
    """What a job prints, in a process of its own as a user would start it."""
    done = subprocess.run(
        [sys.executable, "-m", "waypost", "pipeline", *arguments, "--json"],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cluster") / "traffic"
    simulate(SimulationOptions(messages=3000, out=out, agents=40, seed=5))
    return out


@pytest.fixture(scope="module")
def here(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of this machine alone."""
    return ask(tmp_path_factory.mktemp("here"), journal, "--master", "local[2]", *LITTLE_MEMORY[2:])


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
    journal: Path, here: Answers, cluster: tuple[str, Path], tmp_path: Path
) -> None:
    master, _ = cluster
    there = ask(tmp_path, journal, "--master", master, *LITTLE_MEMORY)
    assert there == here
    assert here.same["differences"] == 0
    assert here.tighter["differences"] > 0


def test_a_spark_connect_server_gives_the_same_answers(
    journal: Path, here: Answers, cluster: tuple[str, Path], tmp_path: Path
) -> None:
    master, python = cluster
    arguments = ("--master", master, "--conf", f"spark.pyspark.python={python}", *LITTLE_MEMORY)
    with connect_server(tmp_path / "server", *arguments) as remote:
        there = ask(tmp_path / "lake", journal, "--remote", remote)
    assert there == here


def test_executors_of_the_cluster_really_lack_waypost(cluster: tuple[str, Path]) -> None:
    _, python = cluster
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for package in ("waypost", "msgspec"):
        done = subprocess.run(
            [python, "-c", f"import {package}"], env=environment, capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in done.stderr
