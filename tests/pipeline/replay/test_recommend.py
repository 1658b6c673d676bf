"""Limits out of traffic: two agents who talk, one who floods."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from waypost import QosConfig, RateLimitConfig, Relay, Settings
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.recommend import Recommendation, recommend
from waypost.policy.settings import merge_settings
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal", durability="async", watch_files=False, qos=QosConfig(enabled=True)
)
A, B, FLOOD = "agent.a", "agent.b", "agent.flood"
BURST = 4


async def converse(relay: Relay, clock: ManualClock, times: int) -> None:
    """A question from B, a burst of answers from A, once a minute."""
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


async def talk(data: Path) -> None:
    """Thirty times a question and its answers; then a flood of what nobody asked for."""
    clock = ManualClock(1_767_225_600_000_000)
    async with Relay(data, settings=SETTINGS, clock=clock) as relay:
        await converse(relay, clock, times=30)
        for _ in range(15):
            await relay.publish(B, "buy!", sender=FLOOD)
            clock.advance_ms(10)
        await relay.seal_journal()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("talk")
    asyncio.run(talk(root / "relay"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / "relay")]))
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


def test_a_curve_tells_what_each_limit_would_reject(advice: Recommendation) -> None:
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


def test_limits_that_stop_the_same_messages_may_each_have_the_whole_share(lake: Lake) -> None:
    advice = recommend(lake, 0.25)
    paths = ("reliability.rateLimit.maxPerWindow", "qos.tier3.maxEnvelopes")
    assert [limit(advice, path) for path in paths] == [BURST - 1, BURST - 1]
    assert advice.measured == pytest.approx(30 / 149)


async def talk_under_two_limits(data: Path) -> None:
    """For a while, half of each burst is refused before anybody looks where it goes."""
    clock = ManualClock(1_767_225_600_000_000)
    for per_window in (BURST // 2, 100):
        settings = msgspec.structs.replace(
            SETTINGS, rate_limit=RateLimitConfig(max_per_window=per_window)
        )
        async with Relay(data, settings=settings, clock=clock) as relay:
            await converse(relay, clock, times=5)
            await relay.seal_journal()


def test_what_a_rate_limit_stopped_in_history_is_nobodys_wanted_mail(
    spark: SparkSession, tmp_path: Path
) -> None:
    asyncio.run(talk_under_two_limits(tmp_path / "relay"))
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([str(tmp_path / "relay")]))
    advice = recommend(lake, 0.0)
    assert limit(advice, "reliability.rateLimit.maxPerWindow") == BURST
    assert (advice.measured_before, advice.measured) == (0.0, 0.0)
