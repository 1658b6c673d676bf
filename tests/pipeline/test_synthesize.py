"""Copies of one simulated relay in a lake, each like an independent relay."""

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cli.conftest import CommandLine
from tests.simulate.journals import events as lines
from tests.simulate.journals import run
from waypost.pipeline.errors import JournalUnusable, LakeUnusable
from waypost.pipeline.jobs import synthesize as synthesize_job
from waypost.pipeline.jobs.synthesize import SynthesisSummary, synthesize
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.pipeline.spark import session
from waypost.pipeline.tables.build import build
from waypost.wire.identifiers import ulid_time_ms

DAY_US = 86_400_000_000
CUT = 700
"""Events of the journal in the third copy."""


class Made(msgspec.Struct):
    """A journal, and a lake with two copies of it and the beginning of a third."""

    data: Path
    block: int
    lake: Lake
    repeated: SynthesisSummary


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("repeats")
    run(root / "traffic", messages=1500)
    block = len(lines(root / "traffic"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthesize_job, "SPREAD_DAYS", 2)  # the third copy begins with the first
        repeated = synthesize(lake, str(root / "traffic" / "journal"), 2 * block + CUT, "sim-7")
    return Made(root / "traffic", block, lake, repeated)


def _events(made: Made) -> list[dict[str, Any]]:
    rows = made.lake.read("events", EVENTS).orderBy("relay", "seq").collect()
    return [row.asDict() for row in rows]


def test_the_number_of_events_is_exact(made: Made) -> None:
    assert made.repeated.relays == 3
    assert made.repeated.block == made.block
    counts = made.lake.read("events", EVENTS).groupBy("relay").count().collect()
    assert {row.relay: row["count"] for row in counts} == {
        "sim-7-00001": made.block,
        "sim-7-00002": made.block,
        "sim-7-00003": CUT,
    }


def test_the_manifest_lists_the_segments_of_each_relay(made: Made) -> None:
    held = made.lake.manifest.relays
    events = {relay: sum(one.events for one in held[relay].values()) for relay in held}
    assert sum(events.values()) == made.repeated.events
    assert events["sim-7-00003"] == max(one.last_seq for one in held["sim-7-00003"].values()) == CUT


def test_the_first_copy_equals_the_journal_except_for_ids(made: Made) -> None:
    first = [one for one in _events(made) if one["relay"] == "sim-7-00001"]
    for copied, line in zip(first, lines(made.data), strict=True):
        shown = {name: copied[name] for name in ("seq", "at_us", "kind")}
        assert shown == {name: line[name] for name in shown}
        assert str(copied["id"] or "")[14:] == str(line.get("id") or "")[14:]


def test_a_later_copy_differs_only_in_days_and_ids(made: Made) -> None:
    rows = _events(made)
    first, second = rows[: made.block], rows[made.block : 2 * made.block]
    ids = {"id", "thread", "parent"}
    moved = {"relay", "day", "at_us", "since_us", "until_us", "not_before_us", "ttl_ms"}
    for one, other in zip(first, second, strict=True):
        same = set(one) - moved - ids
        assert {name: one[name] for name in same} == {name: other[name] for name in same}
        for name in ("at_us", "since_us", "until_us", "not_before_us"):
            assert other[name] == (one[name] and one[name] + DAY_US)
        assert other["ttl_ms"] == (one["ttl_ms"] and one["ttl_ms"] + DAY_US // 1000)


def test_every_id_belongs_to_one_message_and_contains_its_time(made: Made) -> None:
    arrivals = made.lake.read("events", EVENTS).where("kind = 'accepted' and id != ''")
    by_id = arrivals.groupBy("id").agg(
        F.count_distinct("relay").alias("relays"),
        F.count_if(F.col("part") == 0).alias("publishes"),
        F.min("at_us").alias("at_us"),
    )
    found = by_id.collect()
    assert len(found) > made.block // 6
    assert {row.relays for row in found} == {row.publishes for row in found} == {1}
    assert all(ulid_time_ms(row.id) == row.at_us // 1000 for row in found)


def test_all_events_of_a_message_have_its_id(made: Made) -> None:
    events = made.lake.read("events", EVENTS).where("id != ''")
    arrived = events.where("kind in ('accepted', 'rejected')").select("relay", "id").distinct()
    transitions = events.where("kind in ('leased', 'acked', 'failed', 'expired')")
    assert transitions.join(arrived, on=["relay", "id"], how="left_anti").count() == 0
    for name in ("parent", "thread"):
        related = events.where(f"{name} != ''").select("relay", F.col(name).alias("id"))
        assert related.count() > 0
        assert related.join(arrived, on=["relay", "id"], how="left_anti").count() == 0


def test_a_backtest_with_the_same_settings_changes_nothing_in_any_copy(made: Made) -> None:
    build(made.lake)
    result = backtest(made.lake)
    assert result.messages > made.block // 3
    assert result.differences == 0


def test_a_relay_that_is_already_in_the_lake_is_rejected(made: Made) -> None:
    before = made.lake.manifest.version
    with pytest.raises(LakeUnusable, match="already holds relay 'sim-7-00001'"):
        synthesize(made.lake, str(made.data / "journal"), 10, "sim-7")
    assert made.lake.manifest.version == before


def test_a_missing_journal_is_an_error(made: Made, tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="no journal"):
        synthesize(made.lake, str(tmp_path / "nowhere"), 10, "other")


def test_the_command_fills_a_lake_and_leaves_no_other_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_: nullcontext(spark))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    waypost = CommandLine(tmp_path / "unused")
    output = waypost.json("simulate", "--events", "900", "--lake", str(tmp_path / "lake"))
    assert (output["lake"]["events"], output["simulated"]["messages"]) == (900, 450)
    assert open_lake(spark, str(tmp_path / "lake")).read("events", EVENTS).count() == 900
    assert [one.name for one in tmp_path.iterdir()] == ["lake"]
