"""Clocks that jump, go back or stand still: order is kept, waits end, nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.faults import plain_journal
from tests.faults.history import forget_index, state_of
from tests.faults.seeds import seeded
from waypost import (
    BackpressureConfig,
    HousekeepingConfig,
    RateLimitConfig,
    Relay,
    RequestTimedOut,
    Settings,
)
from waypost.relay.clock import system_clock
from waypost.testing import ManualClock

HOUR_US = 3_600_000_000
YEAR_US = 365 * 24 * HOUR_US


def settings(**fields: object) -> Settings:
    loose = {
        "durability": "async",
        "watch_files": False,
        "rate_limit": RateLimitConfig(enabled=False),
        "backpressure": BackpressureConfig(enabled=False),
    }
    return Settings(**{**loose, **fields})  # type: ignore[arg-type]


class SettableClock:
    """A system clock that is off by `offset_us`."""

    def __init__(self, offset_us: int = 0) -> None:
        self.offset_us = offset_us

    def __call__(self) -> int:
        return system_clock() + self.offset_us


async def test_time_in_the_journal_never_goes_back_and_order_holds(tmp_path: Path) -> None:
    clock, sent = ManualClock(), []
    with seeded() as chance:
        for _ in range(4):
            async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
                relay.register_endpoint("agent.a")
                for n in range(15):
                    clock.now_us += chance.choice([0, 0, 1, 1000, -1, -1000, -HOUR_US // 60])
                    result = await relay.publish("agent.a", n, sender="agent.x")
                    sent.append(result.message_id)
            clock.now_us -= HOUR_US // 10
    times = [event["at_us"] for event in plain_journal.committed(tmp_path)]
    assert times == sorted(times)
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        leased = await relay.lease("agent.a", limit=1000)
        assert [one.id for one in leased] == sent
        created = [one.created_at for one in leased]
        assert created == sorted(created)


async def test_ids_sort_in_order_while_the_clock_goes_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        ids = []
        for step in (0, -HOUR_US, 5, -1, 0, HOUR_US, -2 * HOUR_US):
            clock.now_us += step
            ids.append((await relay.publish("agent.a", 1, sender="agent.x")).message_id)
        assert ids == sorted(set(ids))


async def test_a_thousand_publishes_at_one_instant_keep_their_order(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        sending = (relay.publish("agent.a", n, sender="agent.x") for n in range(1000))
        ids = [result.message_id for result in await asyncio.gather(*sending)]
        assert ids == sorted(set(ids))
    for index in ("kept", "lost"):
        if index == "lost":
            forget_index(tmp_path)
        async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
            leased = await relay.lease("agent.a", limit=1000)
            assert [one.payload for one in leased] == list(range(1000))


async def test_a_limit_holds_while_the_clock_is_behind(tmp_path: Path) -> None:
    clock = ManualClock()
    limit = RateLimitConfig(max_per_window=3, window_secs=60)
    async with Relay(tmp_path, settings=settings(rate_limit=limit), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        delivered = 0
        for _ in range(10):
            clock.now_us -= HOUR_US
            delivered += (await relay.publish("agent.a", 1, sender="agent.x")).delivered_to
        assert delivered == 3


async def test_a_year_ahead_ends_everything_that_had_an_end(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        for n in range(5):
            await relay.publish("agent.a", n, sender="agent.x")
        spent = {"call_budget_remaining": 0}
        await relay.publish("agent.a", 5, sender="agent.x", budget=spent)
        assert len(await relay.lease("agent.a", limit=2)) == 2
        clock.now_us += YEAR_US
        relay.sweep()
        await relay.idle()
        assert relay.metrics().by_status == {"pending": 0, "scheduled": 0, "leased": 0, "dead": 0}
        result = await relay.publish("agent.a", "now", sender="agent.x")
        assert [one.id for one in await relay.lease("agent.a")] == [result.message_id]
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == [result.message_id]


async def test_correcting_a_clock_that_ran_a_year_ahead_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        clock.now_us += YEAR_US
        first = await relay.publish("agent.a", 1, sender="agent.x")
        clock.now_us -= YEAR_US
        second = await relay.publish("agent.a", 2, sender="agent.x")
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        leased = await relay.lease("agent.a")
        assert [one.id for one in leased] == [first.message_id, second.message_id]
        assert await relay.ack("agent.a", [one.id for one in leased]) == 2
    plain_journal.assert_index_is_right(tmp_path)


async def test_time_continues_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    limit = RateLimitConfig(max_per_window=1, window_secs=60)
    async with Relay(tmp_path, settings=settings(rate_limit=limit), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", 1, sender="agent.x")
        await relay.lease("agent.a")
        clock.now_us -= YEAR_US
        assert (await relay.publish("agent.a", 2, sender="agent.x")).delivered_to == 0
        clock.advance_ms(60_000)
        relay.sweep()
        await relay.idle()
        assert relay.metrics().by_status["leased"] == 0  # its lease is over
        assert (await relay.publish("agent.a", 2, sender="agent.x")).delivered_to == 1


@pytest.mark.parametrize("offset_us", [-HOUR_US, -YEAR_US])
async def test_waits_end_in_time_although_the_clock_was_set_back(
    tmp_path: Path, offset_us: int
) -> None:
    clock = SettableClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", 1, sender="agent.x")
        clock.offset_us = offset_us
        async with asyncio.timeout(60):
            assert len(await relay.lease("agent.a")) == 1
            assert await relay.lease("agent.a", wait=0.02) == []
            with pytest.raises(RequestTimedOut):
                await relay.request("agent.a", 1, sender="agent.x", timeout=0.02)


async def test_maintenance_continues_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock, swept = SettableClock(), []
    keep = HousekeepingConfig(sweep_interval_ms=10)
    async with Relay(tmp_path, settings=settings(housekeeping=keep), clock=clock) as relay:
        relay._runtime.sweeper.add(swept.append)
        await eventually(lambda: swept, "the first sweep")
        clock.offset_us = -YEAR_US
        count = len(swept)
        await eventually(lambda: len(swept) > count + 3, "more sweeps")


async def test_a_relay_opened_with_a_clock_behind_its_journal_works(tmp_path: Path) -> None:
    clock = SettableClock(YEAR_US)
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", 1, sender="agent.x")
    clock.offset_us = 0
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay, asyncio.timeout(60):
        handled: list[object] = []
        relay.subscribe("agent.a", lambda envelope: handled.append(envelope.payload))
        await relay.publish("agent.a", 2, sender="agent.x")
        await relay.idle()
        assert handled == [1, 2]
        assert await relay.lease("agent.a", wait=0.02) == []


@pytest.mark.parametrize("lost", [False, True], ids=["index kept", "index lost"])
async def test_a_delayed_message_is_delivered_to_its_handler_after_a_restart(
    tmp_path: Path, lost: bool
) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        result = await relay.publish("agent.a", 1, sender="agent.x")
        await relay.lease("agent.a")
        await relay.nack("agent.a", result.message_id, delay=60)
    if lost:
        forget_index(tmp_path)
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        handled: list[str] = []
        relay.subscribe("agent.a", lambda envelope: handled.append(envelope.id))
        clock.advance_ms(59_999)
        await relay.idle()
        assert handled == []
        clock.advance_ms(1)
        await relay.idle()
        assert handled == [result.message_id]


async def test_a_delayed_message_ends_a_waiting_lease_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        relay.register_endpoint("agent.a")
        result = await relay.publish("agent.a", 1, sender="agent.x")
        await relay.lease("agent.a")
        await relay.nack("agent.a", result.message_id, delay=60)
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        waiting = asyncio.create_task(relay.lease("agent.a", wait=600))
        await asyncio.sleep(0)
        clock.advance_ms(60_000)
        async with asyncio.timeout(60):
            assert [one.id for one in await waiting] == [result.message_id]


async def test_endpoints_registered_at_one_instant_are_all_there_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        for subject in ("agent.c", "agent.a", "agent.b"):
            relay.register_endpoint(subject)
        before = state_of(relay)
    async with Relay(tmp_path, settings=settings(), clock=clock) as relay:
        assert state_of(relay) == before
