"""The jobs on the command line, from a journal to a report and a backtest."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars
import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import CommandLine
from waypost.pipeline.spark import session
from waypost.simulate import SimulationOptions, simulate


@pytest.fixture
def waypost(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Return the command line with the tests' session, because starting one takes seconds."""

    @contextmanager
    def shared(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
    return CommandLine(tmp_path / "relay")


@pytest.mark.slow
def test_the_commands_lead_from_a_journal_to_a_report_and_a_backtest(
    waypost: CommandLine, tmp_path: Path
) -> None:
    traffic, lake = tmp_path / "traffic", str(tmp_path / "lake")
    simulate(SimulationOptions(messages=1500, out=traffic, agents=40, seed=2))
    where = ("--lake", lake)
    ran = waypost("pipeline", "run", "--journal", str(traffic), *where).stdout
    assert "Ingested" in ran
    assert f"Report: {lake}/report.html" in ran
    assert "</html>" in Path(lake, "report.html").read_text()
    again = waypost.json("pipeline", "run", "--journal", str(traffic), *where)
    assert (again["ingested"]["events"], again["built"]["batches"]) == (0, 0)
    same = waypost("pipeline", "backtest", *where).stdout
    assert " 0 differences (0.00%)" in same
    tighter = tmp_path / "tighter.json"
    tighter.write_text('{"reliability": {"rateLimit": {"maxPerWindow": 10}}}')
    changed = waypost("pipeline", "backtest", "--settings", str(tighter), *where).stdout
    assert "rate_limited" in changed
    advice = waypost("pipeline", "recommend", "--reject-at-most", "0.01", *where).stdout
    assert "reliability.rateLimit.maxPerWindow" in advice
    restored = waypost.json("pipeline", "restore", *where)
    assert restored["restored"] == restored["pairs"] > 0
    assert waypost.json("pipeline", "restore", *where)["restored"] == 0
    assert waypost.json("verify")["ok"]


def test_settings_can_be_backtested_on_an_imported_trace(
    waypost: CommandLine, tmp_path: Path
) -> None:
    trace = tmp_path / "mails.txt"
    trace.write_text("src dst time\n" + "".join(f"1 2 {1_000_000 + n}\n" for n in range(40)))
    where = ("--lake", str(tmp_path / "lake"))
    output = waypost("pipeline", "import-trace", str(trace), *where).stdout
    assert "40 messages from 1 sender to 1 recipient as relay 'mails'" in output
    quotas = tmp_path / "quotas.json"
    quotas.write_text('{"qos": {"enabled": true}}')
    result = waypost.json("pipeline", "backtest", "--settings", str(quotas), *where)
    assert result["rejected"] == {"quota_exceeded": 20}


def test_decisions_cannot_replace_the_lake_and_spark_is_not_even_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    mark = tmp_path / "lake" / "manifest" / "slot=0" / "part-1.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    monkeypatch.chdir(tmp_path)
    for out in ("lake", ".", "lake/decisions"):
        job = ("pipeline", "backtest", "--lake", "./lake", "--out", out)
        failed = CommandLine(tmp_path / "relay")(*job, exits=1)
        assert f"cannot write decisions to {out}, which would be replaced" in failed.stderr
    assert mark.exists()


def test_a_job_updates_the_delta_tables_that_a_dead_one_left_behind(
    waypost: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(SimulationOptions(messages=200, out=tmp_path / "traffic", agents=24, seed=3))
    lake = tmp_path / "lake"
    job = ("pipeline", "run", "--journal", str(tmp_path / "traffic"), "--lake", str(lake))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "deltalake", None)  # the manifest is committed, no log follows
        waypost(*job)
    assert not any(lake.rglob("_delta_log"))
    foreign = lake / "senders" / "_delta_log"
    foreign.mkdir()
    (foreign / f"{0:020}.json").write_text("not a log")
    again = waypost(*job)
    assert "The tables are up to date." in again.stdout
    assert "Delta table senders not updated: its log is damaged" in again.stderr
    assert (lake / "report.html").is_file()
    shutil.rmtree(foreign)
    assert waypost.json(*job)["built"]["notes"] == []
    assert polars.read_delta(str(lake / "senders")).height > 0
