"""`waypost pipeline`: options, errors and JSON fields."""

import re
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from waypost.pipeline.ingest.job import IngestSummary
from waypost.pipeline.jobs.convert import ConversionSummary
from waypost.pipeline.jobs.import_trace import TraceSummary
from waypost.pipeline.jobs.stream import StreamSummary
from waypost.pipeline.replay.backtest import Backtest
from waypost.pipeline.replay.recommend import Recommendation
from waypost.pipeline.reports.report import ReportSummary
from waypost.pipeline.tables.build import BuildSummary
from waypost.simulate import Summary

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "pipeline-json.md"
PRINTED = {
    "ingest": IngestSummary,
    "build": BuildSummary,
    "convert": ConversionSummary,
    "report": ReportSummary,
    "stream": StreamSummary,
    "backtest": Backtest,
    "recommend": Recommendation,
    "import-trace": TraceSummary,
    "simulate": Summary,
}


@pytest.mark.parametrize("job", PRINTED)
def test_the_reference_lists_exactly_the_printed_fields(job: str) -> None:
    _, *parts = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = dict(part.split("\n", 1) for part in parts)[job]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    fields = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert fields == set(PRINTED[job].__struct_fields__)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--master", "local", "--remote", "sc://x"), "exclude each other"),
        (("--remote", "http://x"), "sc://HOST:15002"),
        (("--conf", "spark.x"), "spark.KEY=VALUE"),
        (("--settings", "nowhere.json"), "cannot read --settings nowhere.json"),
    ],
)
def test_an_invalid_option_is_reported_before_spark_starts(
    waypost: CommandLine, arguments: tuple[str, ...], output: str
) -> None:
    result = waypost("pipeline", "backtest", "--lake", "nowhere", *arguments, exits=2)
    assert output in result.stderr


@pytest.mark.parametrize("job", ["run", "ingest", "stream"])
def test_a_missing_journal_is_reported_before_spark_starts(waypost: CommandLine, job: str) -> None:
    arguments = ("pipeline", job, "--journal", "nowhere", "--lake", "lake")
    message = "no journal at nowhere/journal: give the data directory of a relay"
    assert message in waypost(*arguments, exits=1).stderr


def test_an_invalid_drain_is_reported_before_spark_starts(waypost: CommandLine) -> None:
    arguments = ("pipeline", "import-trace", "x", "--lake", "y", "--drain", "soon")
    assert "next-activity" in waypost(*arguments, exits=2).stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("version", "output"),
    [
        (None, "Java 17 or newer; install one with `apt-get install openjdk-17-jre-headless`"),
        ('openjdk version "11.0.2"', "is Java 11: Spark needs Java 17 or newer; install one with"),
        ('java version "1.8.0_202"', "is Java 8: Spark needs Java 17 or newer; install one with"),
        (
            "segmentation fault",
            "is not a working Java: Spark needs Java 17 or newer; install one with",
        ),
    ],
)
def test_missing_or_old_java_is_one_sentence_with_a_fix(
    waypost: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    output: str,
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if version is not None:
        java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = waypost("pipeline", "build", "--lake", str(tmp_path / "lake"), exits=1)
    assert output in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
