"""Limits out of traffic: two agents who talk, one who floods."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from waypost import QosConfig, Relay, Settings
from waypost.pipeline.ingest import ingest
from waypost.pipeline.journals import parse_places
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.recommend import Recommendation, recommend
from waypost.policy.settings import merge_settings
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal", durability="async", watch_files=False, qos=QosConfig(enabled=True)
)
A, B, FLOOD = "agent.a", "agent.b", "agent.flood"
BURST = 4


async def talk(data: Path) -> None:
    """Thirty times, a burst from A to B and an answer; then a flood of what nobody asked for."""
    clock = ManualClock(1_767_225_600_000_000)
    async with Relay(data, settings=SETTINGS, clock=clock) as relay:
        for endpoint in (A, B):
            relay.register_endpoint(endpoint)
        for _ in range(30):
            await relay.publish(A, "well?", sender=B)
            for number in range(BURST):
                await relay.publish(B, {"number": number}, sender=A)
            for endpoint in (A, B):
                got = await relay.lease(endpoint)
                await relay.ack(endpoint, [one.id for one in got])
            clock.advance_ms(60_000)
        for _ in range(15):
            await relay.publish(B, "buy!", sender=FLOOD)
            clock.advance_ms(10)
        await relay.seal_journal()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("talk")
    asyncio.run(talk(root / "relay"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_places([str(root / "relay")]))
    return lake


@pytest.fixture(scope="module")
def advice(lake: Lake) -> Recommendation:
    return recommend(lake, 0.0)


def limit(advice: Recommendation, path: str) -> int:
    return next(one.recommended for one in advice.limits if one.path == path)


def test_limits_are_as_tight_as_wanted_traffic_allows(advice: Recommendation) -> None:
    assert advice.wanted == 30 * (BURST + 1) - 1  # the very first message was to a stranger
    assert advice.unwanted == 15 + 1
    assert limit(advice, "reliability.rateLimit.maxPerWindow") == BURST
    assert limit(advice, "reliability.backpressure.maxMailboxSize") == BURST
    assert limit(advice, "qos.tier3.maxEnvelopes") == BURST


def test_a_curve_tells_what_each_limit_would_refuse(advice: Recommendation) -> None:
    rate = next(one for one in advice.limits if one.path.endswith("maxPerWindow"))
    by_limit = {point.limit: point for point in rate.curve}
    assert by_limit[BURST].wanted == 0.0
    assert by_limit[BURST].unwanted == pytest.approx(11 / 16)
    assert by_limit[1].wanted == pytest.approx(90 / 149)


def test_a_recommendation_is_replayed_and_fit_for_the_settings_file(
    advice: Recommendation,
) -> None:
    assert advice.measured == 0.0
    merged = merge_settings(SETTINGS, msgspec.json.encode(advice.settings))
    assert merged.rate_limit.max_per_window == BURST
    assert merged.qos.tier3.max_envelopes == BURST
