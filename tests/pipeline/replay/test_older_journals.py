"""A journal of a relay whose breakers counted handlers only is replayed as that relay decided.

`journals/breakers-counted-handlers.jsonl.gz` is a random history of such a relay: its `settings`
events do not say what breakers count.
"""

import gzip
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.replay.conftest import Recording
from tests.pipeline.replay.oracle import assert_agrees, replay_sequentially
from tests.pipeline.replay.sequential import read_journal, replay
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.breakers import DELIVERIES
from waypost.wire.events import SettingsChanged

JOURNAL = Path(__file__).parent / "journals" / "breakers-counted-handlers.jsonl.gz"
SLOWER = {"reliability": {"circuitBreaker": {"failureThreshold": 4, "cooldownMs": 9000}}}


@pytest.fixture(scope="module")
def older(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    root = tmp_path_factory.mktemp("older")
    (root / "relay" / "journal").mkdir(parents=True)
    segment = root / "relay" / "journal" / f"{1:020}.jsonl"
    segment.write_bytes(gzip.decompress(JOURNAL.read_bytes()))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / "relay")]))
    return Recording({"relay": read_journal(root / "relay")}, lake)


def test_an_older_journal_gives_no_difference_under_its_own_settings(older: Recording) -> None:
    result = backtest(older.lake, shortcut=False)
    assert (result.messages > 200, result.differences) == (True, 0)
    assert result.rejected["circuit_open"] > 10


def test_an_older_journal_under_other_settings_agrees_with_the_sequential_replay(
    older: Recording,
) -> None:
    changes = msgspec.json.encode(SLOWER)
    result = backtest(older.lake, changes)
    assert result.differences > 0
    assert_agrees(result, replay_sequentially(older, changes))


def test_the_older_rule_matters_for_this_journal(older: Recording) -> None:
    events = [
        msgspec.structs.replace(one, breakers_count=DELIVERIES)
        if isinstance(one, SettingsChanged)
        else one
        for one in older.events["relay"]
    ]
    decided = replay(events)
    assert any(one.old_reason != one.new_reason for one in decided)
    assert all(one.old_reason == one.new_reason for one in replay(older.events["relay"]))
