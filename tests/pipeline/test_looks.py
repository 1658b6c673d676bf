"""What a look at the lake reads: files are sorted, so that most pages are skipped."""

from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.pipeline.asked import counted_rows
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, PAGE_ROWS_MAX, Lake, open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.simulate import SimulationOptions, simulate

pytestmark = pytest.mark.slow


CHANGES: list[dict[str, Any]] = [
    {"rateLimit": {"perSenderOverrides": {"agent.ring-0-3.node-1": 1}}},
    {"backpressure": {"maxMailboxSize": 75}},
]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake of a journal that is large enough for many pages."""
    root = tmp_path_factory.mktemp("looks")
    simulate(SimulationOptions(messages=30_000, out=root / "relay", agents=40, seed=7, days=1.0))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / "relay")]))
    return lake


@pytest.fixture(scope="module")
def one_file(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return the same events, written by Spark to one file, as when files are merged."""
    root = tmp_path_factory.mktemp("one-file")
    copy = open_lake(lake.spark, str(root / "lake"), create=True)
    change = copy.begin()
    change.append_events(events_of(lake).coalesce(1))
    change.draft.relays = lake.manifest.relays
    change.commit()
    return copy


def events_of(lake: Lake) -> DataFrame:
    return lake.read(EVENTS_TABLE, EVENTS)


def rows_read(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and of those read to find them."""
    with counted_rows(rows.sparkSession) as read:
        found = len(rows.select("seq").collect())
    return found, read.rows


@pytest.mark.parametrize(("column", "kind"), [("sender", "accepted"), ("endpoint", "acked")])
def test_a_look_at_a_sender_or_an_inbox_skips_most_pages(
    one_file: Lake, column: str, kind: str
) -> None:
    of_kind = events_of(one_file).where(F.col("kind") == kind)
    of_all, _ = rows_read(of_kind)
    found, read = rows_read(of_kind.where(F.col(column) == "agent.team-0.lead"))
    assert found > 0
    assert of_all > 5 * PAGE_ROWS_MAX
    assert read <= 3 * PAGE_ROWS_MAX


def test_files_that_arrow_wrote_are_sorted_as_well(lake: Lake) -> None:
    accepted = events_of(lake).where("kind = 'accepted'")
    of_all, _ = rows_read(accepted)
    found, read = rows_read(accepted.where("sender = 'agent.team-0.lead'"))
    assert found > 0
    assert read <= of_all * 3 // 4


@pytest.mark.parametrize("changes", CHANGES)
def test_a_backtest_with_other_limits_reads_the_lake_at_most_twice(
    one_file: Lake, changes: dict[str, Any]
) -> None:
    with counted_rows(one_file.spark) as read:
        result = backtest(one_file, msgspec.json.encode({"reliability": changes}))
    assert result.differences > 0
    assert result.scope.endpoints_replayed > 0
    assert read.rows <= 2 * one_file.manifest.events


def test_a_backtest_with_the_same_limits_reads_the_lake_once(one_file: Lake) -> None:
    with counted_rows(one_file.spark) as read:
        assert backtest(one_file).differences == 0
    assert read.rows <= one_file.manifest.events
