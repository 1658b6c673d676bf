"""Random histories in one lake, made once."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.replay.histories import History
from tests.pipeline.replay.sequential import read_journal
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.wire.events import AnyEvent

RELAYS = 10
STEPS = 100


class Past(msgspec.Struct):
    """What happened at each relay, and the lake that holds it all."""

    events: dict[str, list[AnyEvent]]
    lake: Lake


@pytest.fixture(scope="session")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Past:
    root = tmp_path_factory.mktemp("past")
    events = asyncio.run(_histories(root))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / relay) for relay in events]))
    return Past(events, lake)


async def _histories(root: Path) -> dict[str, list[AnyEvent]]:
    log = logging.getLogger("waypost.relay")
    before = log.level
    log.setLevel(logging.CRITICAL)  # handlers that raise are part of it
    for seed in range(RELAYS):
        await History(root / f"relay-{seed}", seed).live(STEPS)
    log.setLevel(before)
    return {f"relay-{seed}": read_journal(root / f"relay-{seed}") for seed in range(RELAYS)}
