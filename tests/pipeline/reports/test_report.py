"""Writing the report: content, maximum size, and the report of an empty lake."""

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.asked import counted_queries
from tests.pipeline.reports.small_lake import SMALL, LakeInMemory, as_rows, at
from waypost.pipeline.errors import PipelineError
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.reports import report as report_job
from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.formatting import DAY_MS, MINUTE_MS
from waypost.pipeline.reports.queries import query_report_data
from waypost.pipeline.reports.queries.periods import STEPS_MAX, period_of, smooth_step, step_for
from waypost.pipeline.reports.report import write_page, write_report
from waypost.pipeline.tables.registry import TABLES

MANY = 5_000
QUERIES_MAX = 6
BYTES_MAX = 1_500_000


def test_a_page_is_one_file_with_a_summary(small_report: ReportData, tmp_path: Path) -> None:
    out = tmp_path / "reports" / "report.html"
    summary = write_page(small_report, out)
    assert [out] == list(out.parent.iterdir())
    assert summary.bytes == out.stat().st_size
    assert (summary.messages, summary.relays, summary.days) == (13, 2, 1)
    assert summary.headline in out.read_text(encoding="utf-8")
    looped = "agent.b → agent.c → agent.b @ north looped 17 times and was stopped."
    assert looped in summary.findings


def test_a_failed_write_leaves_no_file_behind(small_report: ReportData, tmp_path: Path) -> None:
    taken = tmp_path / "report.html"
    taken.mkdir()
    with pytest.raises(PipelineError, match="directory"):
        write_page(small_report, taken)
    assert list(tmp_path.iterdir()) == [taken]


@pytest.mark.parametrize("function", ["make_directory", "replace_file"])
def test_a_page_that_cannot_be_written_is_an_error_with_a_remedy(
    small_report: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(report_job, function, fail)
    page = tmp_path / "lake" / "report.html"
    wanted = f"cannot write the report to {page}: Read-only file system: .* --out .* --report"
    with pytest.raises(PipelineError, match=wanted):
        write_page(small_report, page)


def test_the_report_of_an_empty_lake_states_that(spark: SparkSession, tmp_path: Path) -> None:
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    summary = write_report(lake, tmp_path / "empty.html")
    page = (tmp_path / "empty.html").read_text(encoding="utf-8")
    assert summary.headline == "This lake has no traffic yet."
    assert summary.headline in page
    assert 'role="img"' not in page


def test_a_report_shows_the_contents_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    change = lake.begin()
    rows = spark.createDataFrame(as_rows("traffic", SMALL["traffic"]), TABLES["traffic"])
    change.rewrite("traffic", rows)
    change.commit()
    summary = write_report(lake, tmp_path / "report.html")
    assert (summary.messages, summary.relays, summary.days) == (13, 2, 1)
    assert "version 1 of the lake" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_asks_few_queries(spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeInMemory(spark, SMALL)
    with counted_queries(spark) as asked:
        write_report(lake, tmp_path / "report.html")
    assert 1 <= asked.queries <= QUERIES_MAX


@pytest.mark.slow
def test_data_and_page_stay_small_for_any_lake(spark: SparkSession, tmp_path: Path) -> None:
    with counted_queries(spark) as asked:
        report = query_report_data(LakeInMemory(spark, _many()))
    assert asked.queries <= QUERIES_MAX
    assert report.rejections.more + len(report.rejections.reasons) == MANY
    assert report.pressure.more + len(report.pressure.inboxes) == MANY
    assert report.pressure.warned == MANY
    assert report.latency.more + len(report.latency.inboxes) == MANY
    assert report.senders.more + len(report.senders.senders) == MANY
    assert report.senders.inboxes_more + len(report.senders.inboxes) == MANY
    assert report.breakers.more + len(report.breakers.breakers) == MANY
    assert report.dead_letters.reasons_more + len(report.dead_letters.reasons) == MANY
    assert report.anomalies.anomalies_more + len(report.anomalies.anomalies) == MANY
    assert report.anomalies.loops_more + len(report.anomalies.loops) == MANY
    assert report.connections.more + len(report.connections.agents) == MANY
    assert len(report.traffic.steps) <= STEPS_MAX
    assert len(msgspec.json.encode(report)) < 500_000
    assert write_page(report, tmp_path / "report.html").bytes < BYTES_MAX


def _many() -> dict[str, list[dict[str, Any]]]:
    """Return every row of the small lake thousands of times, each with its own name and time."""
    made: dict[str, list[dict[str, Any]]] = {}
    for table, rows in SMALL.items():
        pattern = rows[-1]
        made[table] = [_renamed(pattern, index) for index in range(MANY)]
    return made


def _renamed(row: dict[str, Any], index: int) -> dict[str, Any]:
    name = f"agent.{'very-long-name.' * 10}{index}"
    changed = {
        "endpoint": name,
        "sender": name,
        "subject": name,
        "reason": "text " * 100 + str(index),
        "chain": [name] * 20,
        "why": "words " * 100,
        "minute": at(index * 7),
        "at": at(index * 7),
        "arrived_at": at(index * 7),
        "connected_at": at(index * 7),
        "wait_ms": 7.0 + index,
        "pressure": 0.9,
    }
    return row | {name: value for name, value in changed.items() if name in row}


@pytest.mark.parametrize(
    "span_ms", [1, MINUTE_MS, 7 * MINUTE_MS, DAY_MS, 90 * DAY_MS, 9_999 * DAY_MS]
)
@pytest.mark.parametrize("first_ms", [1_767_448_800_000, 1_767_448_812_345])
def test_a_period_has_a_bounded_number_of_steps(first_ms: int, span_ms: int) -> None:
    period = period_of(first_ms, first_ms + span_ms)
    steps = -(-(period.last_ms - period.first_ms) // period.step_ms)
    assert 1 <= steps <= STEPS_MAX
    assert period.first_ms <= first_ms
    assert period.coarse_step_ms >= period.step_ms
    assert period.known_from_ms == first_ms


def test_a_step_is_as_short_as_the_bound_allows() -> None:
    assert step_for(3 * 60 * MINUTE_MS, 200) == MINUTE_MS
    assert step_for(4 * 60 * MINUTE_MS, 200) == 2 * MINUTE_MS
    assert step_for(30 * DAY_MS, 200) == 6 * 60 * MINUTE_MS


def test_percentiles_of_few_messages_use_longer_steps() -> None:
    period = period_of(1_767_448_800_000, 1_767_448_800_000 + 2 * DAY_MS)
    assert smooth_step(period, 1_000_000) == period.step_ms
    assert smooth_step(period, 2_400) == 60 * MINUTE_MS
    assert smooth_step(period, 1) == 2 * 60 * MINUTE_MS
