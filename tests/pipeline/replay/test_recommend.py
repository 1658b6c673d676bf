"""Limits recommended from the traffic of two agents in conversation and a flooder."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from waypost import QosConfig, RateLimitConfig, Relay, Settings
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.pipeline.replay.recommend import Recommendation, recommend
from waypost.policy.settings import merge_settings
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal", durability="async", watch_files=False, qos=QosConfig(enabled=True)
)
A, B, FLOOD = "agent.a", "agent.b", "agent.flood"
BURST = 4


async def converse(relay: Relay, clock: ManualClock, times: int) -> None:
    """Send a question from B and a burst of replies from A, once a minute."""
    for endpoint in (A, B):
        relay.register_endpoint(endpoint)
    for _ in range(times):
        await relay.publish(A, "well?", sender=B)
        for number in range(BURST):
            await relay.publish(B, {"number": number}, sender=A)
        for endpoint in (A, B):
            got = await relay.lease(endpoint)
            await relay.ack(endpoint, [one.id for one in got])
        clock.advance_ms(60_000)


async def record_conversation(data: Path) -> None:
    """Thirty questions with their replies, then an unsolicited flood."""
    clock = ManualClock(1_767_225_600_000_000)
    async with Relay(data, settings=SETTINGS, clock=clock) as relay:
        await converse(relay, clock, times=30)
        for _ in range(15):
            await relay.publish(B, "buy!", sender=FLOOD)
            clock.advance_ms(10)
        await relay.seal_journal()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("conversation")
    asyncio.run(record_conversation(root / "relay"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / "relay")]))
    return lake


@pytest.fixture(scope="module")
def recommendation(lake: Lake) -> Recommendation:
    return recommend(lake, 0.0)


def limit(recommendation: Recommendation, path: str) -> int:
    return next(one.recommended for one in recommendation.limits if one.path == path)


def test_limits_are_as_tight_as_wanted_traffic_allows(recommendation: Recommendation) -> None:
    assert recommendation.wanted == 30 * (BURST + 1) - 1  # the first message had an unknown sender
    assert recommendation.unwanted == 15 + 1
    assert limit(recommendation, "reliability.rateLimit.maxPerWindow") == BURST
    assert limit(recommendation, "reliability.backpressure.maxMailboxSize") == BURST
    assert limit(recommendation, "qos.tier3.maxEnvelopes") == BURST


def test_a_curve_shows_the_share_that_each_limit_rejects(recommendation: Recommendation) -> None:
    rate = next(one for one in recommendation.limits if one.path.endswith("maxPerWindow"))
    by_limit = {point.limit: point for point in rate.curve}
    assert by_limit[BURST].wanted == 0.0
    assert by_limit[BURST].unwanted == pytest.approx(11 / 16)
    assert by_limit[1].wanted == pytest.approx(90 / 149)


def test_a_recommendation_is_replayed_and_fits_into_the_settings_file(
    recommendation: Recommendation,
) -> None:
    assert recommendation.measured == 0.0
    merged = merge_settings(SETTINGS, msgspec.json.encode(recommendation.settings))
    assert merged.rate_limit.max_per_window == BURST
    assert merged.qos.tier3.max_envelopes == BURST


def test_limits_that_reject_the_same_messages_each_get_the_whole_share(lake: Lake) -> None:
    recommendation = recommend(lake, 0.25)
    paths = ("reliability.rateLimit.maxPerWindow", "qos.tier3.maxEnvelopes")
    assert [limit(recommendation, path) for path in paths] == [BURST - 1, BURST - 1]
    assert recommendation.measured == pytest.approx(30 / 149)


async def record_under_two_limits(data: Path) -> None:
    """Converse under a limit that rejects half of each burst, then without it."""
    clock = ManualClock(1_767_225_600_000_000)
    for per_window in (BURST // 2, 100):
        settings = msgspec.structs.replace(
            SETTINGS, rate_limit=RateLimitConfig(max_per_window=per_window)
        )
        async with Relay(data, settings=settings, clock=clock) as relay:
            await converse(relay, clock, times=5)
            await relay.seal_journal()


def test_arrivals_that_history_rate_limited_are_not_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    asyncio.run(record_under_two_limits(tmp_path / "relay"))
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([str(tmp_path / "relay")]))
    recommendation = recommend(lake, 0.0)
    assert limit(recommendation, "reliability.rateLimit.maxPerWindow") == BURST
    assert (recommendation.measured_before, recommendation.measured) == (0.0, 0.0)


async def record_conversation_only(data: Path) -> None:
    clock = ManualClock(1_767_225_600_000_000)
    async with Relay(data, settings=SETTINGS, clock=clock) as relay:
        await converse(relay, clock, times=5)
        await relay.seal_journal()


def test_history_with_unlimited_tiers_is_replayed_and_limits_are_recommended(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "relay"
    data.mkdir(mode=0o700)
    off = {"maxEnvelopes": 18446744073709551615, "maxBytes": 18446744073709551615}
    config = {"qos": {"tier1": off, "tier2": off, "tier3": off}}
    (data / "config.json").write_bytes(msgspec.json.encode(config))
    asyncio.run(record_conversation_only(data))
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([str(data)]))
    assert backtest(lake, shortcut=False).differences == 0
    recommendation = recommend(lake, 0.0)
    assert limit(recommendation, "qos.tier3.maxEnvelopes") == BURST
    now = {one.path: one.current for one in recommendation.limits}
    assert now["qos.tier3.maxEnvelopes"] == 2**53
