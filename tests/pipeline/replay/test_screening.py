"""Screening in histories where a single recorded number makes a key affected."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.replay.conftest import Recording
from tests.pipeline.replay.oracle import assert_agrees, replay_sequentially, without_depth_bytes
from tests.pipeline.replay.sequential import read_journal
from waypost import BackpressureConfig, CircuitBreakerConfig, QosConfig, Relay, Settings
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.tiers import WEEK_MS, TierLimits
from waypost.testing import ManualClock
from waypost.wire.envelopes import Envelope

QUIET = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    circuit_breaker=CircuitBreakerConfig(enabled=False, failure_threshold=5),
)
Scenario = Callable[[Relay, Path], Awaitable[None]]


def fail(envelope: Envelope) -> None:
    raise ConnectionError("away")


async def send(relay: Relay, times: int, to: str = "agent.a", by: str = "agent.b") -> None:
    for _ in range(times):
        await relay.publish(to, "x" * 300, sender=by)
        await relay.idle()


async def fail_often(relay: Relay, data: Path) -> None:
    relay.subscribe("agent.a", fail)
    await send(relay, 7)


async def fail_before_and_after_a_change(relay: Relay, data: Path) -> None:
    relay.subscribe("agent.a", fail)
    await send(relay, 1)
    lower = {"reliability": {"circuitBreaker": {"enabled": False, "failureThreshold": 2}}}
    (data / "config.json").write_bytes(msgspec.json.encode(lower))
    relay._runtime.settings.reload()
    await send(relay, 2)


async def reply_to_a_heavy_sender(relay: Relay, data: Path) -> None:
    relay.register_endpoint("agent.b")
    await send(relay, 3, to="agent.elsewhere")
    await send(relay, 1)
    await send(relay, 3, to="agent.b", by="agent.a")


async def receive_from_a_restored_pair(relay: Relay, data: Path) -> None:
    await relay.remember_pairs([("agent.a", "agent.b", 1_767_225_500_000)])
    await send(relay, 3)


async def answer_a_sender_whose_messages_are_pending(relay: Relay, data: Path) -> None:
    relay.register_endpoint("agent.b")
    await send(relay, 2)
    await send(relay, 3, to="agent.elsewhere", by="agent.a")
    await send(relay, 1, to="agent.b", by="agent.a")
    await send(relay, 1, by="agent.c")


async def write_to_oneself(relay: Relay, data: Path) -> None:
    await send(relay, 3, by="agent.a")
    await send(relay, 3, by="agent.c")
    await send(relay, 3, by="agent.a")


async def fill(relay: Relay, data: Path) -> None:
    await send(relay, 8)


@pytest.fixture
def record(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Callable[[Settings, Scenario], Recording]:
    """Return a function that records the history of one relay."""
    caplog.set_level(logging.CRITICAL, "waypost.relay")  # handlers raise on purpose

    async def run(settings: Settings, scenario: Scenario) -> None:
        async with Relay(
            tmp_path / "relay", settings=settings, clock=ManualClock(1_767_225_600_000_000)
        ) as relay:
            relay.register_endpoint("agent.a")
            await scenario(relay, tmp_path / "relay")
            await relay.seal_journal()

    def recording(settings: Settings, scenario: Scenario) -> Recording:
        asyncio.run(run(settings, scenario))
        lake = open_lake(spark, str(tmp_path / "lake"), create=True)
        ingest(lake, parse_sources([str(tmp_path / "relay")]))
        return Recording({"relay": read_journal(tmp_path / "relay")}, lake)

    return recording


@pytest.mark.parametrize("scenario", [fail_often, fail_before_and_after_a_change])
def test_failures_recorded_while_breakers_were_off_count(
    record: Callable[[Settings, Scenario], Recording], scenario: Scenario
) -> None:
    recording = record(QUIET, scenario)
    changes = msgspec.json.encode({"reliability": {"circuitBreaker": {"enabled": True}}})
    result = backtest(recording.lake, changes)
    assert result.by_reason.keys() == {"accepted"}
    assert_agrees(result, replay_sequentially(recording, changes))


def test_a_lower_byte_cap_is_replayed_without_depth_bytes(
    record: Callable[[Settings, Scenario], Recording],
) -> None:
    recording = record(msgspec.structs.replace(QUIET, qos=QosConfig(enabled=True)), fill)
    changes = msgspec.json.encode({"qos": {"inboxMaxBytes": 2000, "overflow": "reject"}})
    result = backtest(without_depth_bytes(recording.lake), changes)
    assert result.differences > 0
    assert_agrees(result, replay_sequentially(recording, changes))


def test_messages_that_are_no_longer_evicted_fill_the_mailbox(
    record: Callable[[Settings, Scenario], Recording],
) -> None:
    settings = msgspec.structs.replace(
        QUIET,
        qos=QosConfig(enabled=True, inbox_max_bytes=1000),
        backpressure=BackpressureConfig(max_mailbox_size=5),
    )
    recording = record(settings, fill)
    changes = msgspec.json.encode({"qos": {"inboxMaxBytes": 1_000_000}})
    result = backtest(recording.lake, changes)
    assert result.by_reason == {"accepted": {"backpressure": 3}}
    assert_agrees(result, replay_sequentially(recording, changes))


@pytest.mark.parametrize(
    ("scenario", "limit", "new_limit", "changed"),
    [
        # Without agent.b's message, agent.a is unknown there and may have one message in the inbox.
        (reply_to_a_heavy_sender, 100, 3, {"accepted": {"rate_limited": 1, "quota_exceeded": 2}}),
        # A restored pair makes the sender of the arrivals that pass now known.
        (receive_from_a_restored_pair, 1, 100, {"rate_limited": {"accepted": 2}}),
    ],
)
def test_tiers_follow_from_the_arrivals_that_pass_the_new_rate_limit(
    record: Callable[[Settings, Scenario], Recording],
    scenario: Scenario,
    limit: int,
    new_limit: int,
    changed: dict[str, dict[str, int]],
) -> None:
    settings = msgspec.structs.replace(
        QUIET,
        rate_limit=RateLimitConfig(max_per_window=limit),
        qos=QosConfig(enabled=True, tier1=TierLimits(1, 9000)),
    )
    recording = record(settings, scenario)
    changes = msgspec.json.encode({"reliability": {"rateLimit": {"maxPerWindow": new_limit}}})
    result = backtest(recording.lake, changes)
    assert result.by_reason == changed
    assert_agrees(result, replay_sequentially(recording, changes))


def test_evictions_follow_from_what_the_recipient_wrote_under_the_new_rate_limit(
    record: Callable[[Settings, Scenario], Recording],
) -> None:
    settings = msgspec.structs.replace(
        QUIET,
        rate_limit=RateLimitConfig(max_per_window=100),
        qos=QosConfig(enabled=True, inbox_max_bytes=1200),
    )
    recording = record(settings, answer_a_sender_whose_messages_are_pending)
    changes = msgspec.json.encode({"reliability": {"rateLimit": {"maxPerWindow": 3}}})
    result = backtest(recording.lake, changes)
    # Without the answer, agent.b is as unknown as agent.c, and is evicted for it.
    assert result.by_reason == {
        "accepted": {"rate_limited": 1},
        "backpressure": {"accepted": 1},
    }
    assert_agrees(result, replay_sequentially(recording, changes))


@pytest.mark.parametrize("window_ms", [WEEK_MS, 1000])
def test_messages_to_oneself_are_decided_before_they_count_as_contact(
    record: Callable[[Settings, Scenario], Recording], window_ms: int
) -> None:
    settings = msgspec.structs.replace(QUIET, qos=QosConfig(enabled=True, inbox_max_bytes=1200))
    recording = record(settings, write_to_oneself)
    changes = msgspec.json.encode({"qos": {"bidirectionalWindowMs": window_ms}})
    result = backtest(recording.lake, changes, shortcut=False)
    assert_agrees(result, replay_sequentially(recording, changes))
