"""Who is left alone by a replay, where only one number says that it must not be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.replay.conftest import Past
from tests.pipeline.replay.oracle import Older, agrees, judged_plainly
from tests.pipeline.replay.sequential import read_journal
from waypost import BackpressureConfig, CircuitBreakerConfig, QosConfig, Relay, Settings
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.tiers import TierLimits
from waypost.testing import ManualClock
from waypost.wire.envelopes import Envelope

QUIET = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    circuit_breaker=CircuitBreakerConfig(enabled=False, failure_threshold=5),
)
Life = Callable[[Relay, Path], Awaitable[None]]


def fail(envelope: Envelope) -> None:
    raise ConnectionError("away")


async def send(relay: Relay, times: int, to: str = "agent.a", by: str = "agent.b") -> None:
    for _ in range(times):
        await relay.publish(to, "x" * 300, sender=by)
        await relay.idle()


async def fail_often(relay: Relay, data: Path) -> None:
    relay.subscribe("agent.a", fail)
    await send(relay, 7)


async def fail_on_both_sides_of_a_change(relay: Relay, data: Path) -> None:
    relay.subscribe("agent.a", fail)
    await send(relay, 1)
    lower = {"reliability": {"circuitBreaker": {"enabled": False, "failureThreshold": 2}}}
    (data / "config.json").write_bytes(msgspec.json.encode(lower))
    relay.parts.settings.reload()
    await send(relay, 2)


async def answer_who_said_much(relay: Relay, data: Path) -> None:
    relay.register_endpoint("agent.b")
    await send(relay, 3, to="agent.elsewhere")
    await send(relay, 1)
    await send(relay, 3, to="agent.b", by="agent.a")


async def hear_from_one_known_of_old(relay: Relay, data: Path) -> None:
    await relay.remember_pairs([("agent.a", "agent.b", 1_767_225_500_000)])
    await send(relay, 3)


async def fill(relay: Relay, data: Path) -> None:
    await send(relay, 8)


@pytest.fixture
def lived(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Callable[[Settings, Life], Past]:
    """The past of one relay that lived so."""
    caplog.set_level(logging.CRITICAL, "waypost.relay")  # handlers that raise are part of it

    async def live(settings: Settings, life: Life) -> None:
        async with Relay(
            tmp_path / "relay", settings=settings, clock=ManualClock(1_767_225_600_000_000)
        ) as relay:
            relay.register_endpoint("agent.a")
            await life(relay, tmp_path / "relay")
            await relay.seal_journal()

    def past(settings: Settings, life: Life) -> Past:
        asyncio.run(live(settings, life))
        lake = open_lake(spark, str(tmp_path / "lake"), create=True)
        ingest(lake, parse_sources([str(tmp_path / "relay")]))
        return Past({"relay": read_journal(tmp_path / "relay")}, lake)

    return past


@pytest.mark.parametrize("life", [fail_often, fail_on_both_sides_of_a_change])
def test_failures_count_for_breakers_that_were_off(
    lived: Callable[[Settings, Life], Past], life: Life
) -> None:
    past = lived(QUIET, life)
    changes = msgspec.json.encode({"reliability": {"circuitBreaker": {"enabled": True}}})
    result = backtest(past.lake, changes)
    assert result.by_reason.keys() == {"accepted"}
    agrees(result, judged_plainly(past, changes))


def test_bytes_count_for_caps_that_nobody_came_near(
    lived: Callable[[Settings, Life], Past],
) -> None:
    past = lived(msgspec.structs.replace(QUIET, qos=QosConfig(enabled=True)), fill)
    changes = msgspec.json.encode({"qos": {"inboxMaxBytes": 2000, "overflow": "reject"}})
    result = backtest(Older(past.lake.spark, past.lake.path, past.lake.manifest), changes)
    assert result.differences > 0
    agrees(result, judged_plainly(past, changes))


def test_mail_that_is_no_longer_evicted_takes_its_place(
    lived: Callable[[Settings, Life], Past],
) -> None:
    settings = msgspec.structs.replace(
        QUIET,
        qos=QosConfig(enabled=True, inbox_max_bytes=1000),
        backpressure=BackpressureConfig(max_mailbox_size=5),
    )
    past = lived(settings, fill)
    changes = msgspec.json.encode({"qos": {"inboxMaxBytes": 1_000_000}})
    result = backtest(past.lake, changes)
    assert result.by_reason == {"accepted": {"backpressure": 3}}
    agrees(result, judged_plainly(past, changes))


@pytest.mark.parametrize(
    ("life", "limit", "other", "turns"),
    [
        # Without its one word to agent.a, agent.b is nobody to be answered three times.
        (answer_who_said_much, 100, 3, {"accepted": {"rate_limited": 1, "quota_exceeded": 2}}),
        # What passes now is from one that agent.a wrote to, if only by hearsay.
        (hear_from_one_known_of_old, 1, 100, {"rate_limited": {"accepted": 2}}),
    ],
)
def test_tiers_follow_from_what_other_limits_let_pass(
    lived: Callable[[Settings, Life], Past],
    life: Life,
    limit: int,
    other: int,
    turns: dict[str, dict[str, int]],
) -> None:
    settings = msgspec.structs.replace(
        QUIET,
        rate_limit=RateLimitConfig(max_per_window=limit),
        qos=QosConfig(enabled=True, tier1=TierLimits(1, 9000)),
    )
    past = lived(settings, life)
    changes = msgspec.json.encode({"reliability": {"rateLimit": {"maxPerWindow": other}}})
    result = backtest(past.lake, changes)
    assert result.by_reason == turns
    agrees(result, judged_plainly(past, changes))
