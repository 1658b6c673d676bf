"""Fixture: random histories of several relays, recorded once in one lake."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.replay.histories import RandomHistory
from tests.pipeline.replay.sequential import read_journal
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.wire.events import AnyEvent

RELAYS = 10
STEPS = 100


class Recording(msgspec.Struct):
    """The events of each relay, and the lake they were ingested into."""

    events: dict[str, list[AnyEvent]]
    lake: Lake


@pytest.fixture(scope="session")
def recording(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    root = tmp_path_factory.mktemp("recording")
    events = asyncio.run(_record_histories(root))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / relay) for relay in events]))
    return Recording(events, lake)


async def _record_histories(root: Path) -> dict[str, list[AnyEvent]]:
    log = logging.getLogger("waypost.relay")
    before = log.level
    log.setLevel(logging.CRITICAL)  # handlers raise on purpose
    for seed in range(RELAYS):
        await RandomHistory(root / f"relay-{seed}", seed).run(STEPS)
    log.setLevel(before)
    return {f"relay-{seed}": read_journal(root / f"relay-{seed}") for seed in range(RELAYS)}
