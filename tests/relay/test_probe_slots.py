"""A half-open breaker gets back the slot of every probe, however the probe ends.

`test_slots_in_use_are_the_live_probes` recounts the slots from the journal after random steps.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.relay.observing import events, send
from waypost import (
    CircuitBreakerConfig,
    Envelope,
    QosConfig,
    RateLimitConfig,
    Relay,
    Settings,
    TierLimits,
)
from waypost.testing import ManualClock

COOLDOWN_MS = 1_000
LEASE_MS = 5_000
AMPLE = TierLimits(1_000, 1_000_000)


class ProbedRelay:
    """One relay with one endpoint, whose breaker opens at the first failure."""

    def __init__(self, data: Path, probes: int = 1) -> None:
        self.data = data
        self.clock = ManualClock()
        self.gate = asyncio.Event()
        self.stops: list[Callable[[], None]] = []
        self.consumer: Any = None
        self.settings = Settings(
            storage="journal",
            durability="async",
            watch_files=False,
            lease_timeout_ms=LEASE_MS,
            rate_limit=RateLimitConfig(enabled=False),
            circuit_breaker=CircuitBreakerConfig(
                failure_threshold=1,
                cooldown_ms=COOLDOWN_MS,
                half_open_probe_count=probes,
                success_to_close=3,
            ),
            qos=QosConfig(
                enabled=True,
                tier1=AMPLE,
                tier2=AMPLE,
                tier3=AMPLE,
                inbox_max_bytes=2_000,
                overflow="evict_heaviest",
            ),
        )

    async def open(self) -> None:
        self.relay = await Relay(self.data, settings=self.settings, clock=self.clock).open()
        self.relay.register_endpoint("agent.a")

    async def close(self) -> None:
        self.gate.set()
        await self.relay.close()
        self.gate, self.consumer = asyncio.Event(), None
        self.stops.clear()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def publish(self, size: int = 10, **more: Any) -> int:
        return (await send(self.relay, "x" * size, **more)).delivered_to

    async def publish_for_a_second(self) -> None:
        await self.publish(budget={"ttl": self.clock() // 1000 + 1_000})

    async def publish_with_a_spent_budget(self) -> None:
        await self.publish(budget={"call_budget_remaining": 0})

    async def publish_much(self) -> None:
        await self.publish(1_600)

    # Handlers

    async def subscribe(self, *, fails: bool = False, waits: bool = False) -> None:
        async def handle(envelope: Envelope) -> None:
            if waits:
                await self.gate.wait()
            if fails:
                raise ConnectionError("away")

        self.stops.append(self.relay.subscribe("agent.*", handle))

    async def subscribe_one_that_fails(self) -> None:
        await self.subscribe(fails=True)

    async def subscribe_one_that_waits(self) -> None:
        await self.subscribe(waits=True)

    async def unsubscribe(self) -> None:
        if self.stops:
            self.stops.pop()()

    async def unsubscribe_before_it_is_durable(self) -> None:
        publishing = asyncio.ensure_future(self.publish())
        await asyncio.sleep(0)
        await self.unsubscribe()
        await publishing

    async def end_waits(self) -> None:
        self.gate.set()
        await self.relay.idle()
        self.gate = asyncio.Event()

    # Consumers and leases

    async def attach(self) -> None:
        if self.consumer is None and self.relay.get_endpoint("agent.a"):
            self.consumer = self.relay.attach("agent.a", lambda: None)

    async def take(self) -> None:
        if self.consumer is not None:
            self.consumer.take(3)

    async def nack_taken(self) -> None:
        if self.consumer is not None:
            self.consumer.nack(list(self.consumer.in_flight), 0.0)

    async def release_taken(self) -> None:
        if self.consumer is not None:
            self.consumer.release(list(self.consumer.in_flight), 0.0)

    async def ack_taken(self) -> None:
        if self.consumer is not None:
            self.consumer.ack(list(self.consumer.in_flight))

    async def detach(self) -> None:
        if self.consumer is not None:
            self.consumer.detach()
            self.consumer = None

    async def lease(self) -> list[str]:
        if self.relay.get_endpoint("agent.a") is None:
            return []
        return [one.id for one in await self.relay.lease("agent.a", limit=2)]

    async def lease_and_ack(self) -> None:
        if ids := await self.lease():
            await self.relay.ack("agent.a", ids)

    async def lease_and_nack(self) -> None:
        if ids := await self.lease():
            await self.relay.nack("agent.a", ids)

    async def lease_and_release(self) -> None:
        if ids := await self.lease():
            self.relay.claims.release("agent.a", ids)

    # Time, operators, endpoints

    async def cool_down(self) -> None:
        self.clock.advance_ms(COOLDOWN_MS)

    async def time_leases_out(self) -> None:
        self.clock.advance_ms(LEASE_MS)
        self.relay.sweep()

    async def sweep(self) -> None:
        self.clock.advance_ms(1_001)
        self.relay.sweep()

    async def redrive(self) -> None:
        await self.relay.redrive([one.envelope.id for one in await self.relay.dead_letters()])

    async def purge(self) -> None:
        await self.relay.purge_dead_letters()

    async def reset(self) -> None:
        await self.relay.reset_breaker("agent.a")

    async def register_again(self) -> None:
        if self.relay.get_endpoint("agent.a") is None:
            self.relay.register_endpoint("agent.a")

    async def unregister(self) -> None:
        if self.relay.get_endpoint("agent.a") is not None:
            self.relay.unregister_endpoint("agent.a")

    # Observations

    def slots_in_use(self) -> int:
        breaker = self.relay.metrics().breakers.get("agent.a")
        return 0 if breaker is None else breaker.probes_in_flight

    def live_probes(self) -> set[str]:
        """Recount the probes in flight from the journal alone."""
        live: set[str] = set()
        for event in events(self.data):
            match event["kind"]:
                case "settings" if event["cause"] == "start":
                    live.clear()
                case "breaker" if event["after"] != "HALF_OPEN":
                    live.clear()
                case "accepted" if event.get("probe") and event.get("deferred"):
                    live.add(event["id"])
                case "acked" | "returned" | "failed" | "expired" | "evicted" | "redriven":
                    live.discard(event["id"])
        return live

    async def half_open(self, consumer: Callable[[], Awaitable[None]]) -> None:
        """Open the breaker, let the cooldown pass, and store a probe for `consumer`."""
        await self.subscribe_one_that_fails()
        await self.publish()
        await self.relay.idle()
        await self.unsubscribe()
        await self.purge()
        await self.cool_down()
        await consumer()
        assert await self.publish() == 1
        assert self.slots_in_use() == 1


@contextlib.asynccontextmanager
async def probed_relay(data: Path, probes: int = 1) -> Any:
    opened = ProbedRelay(data, probes)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


ENDS: dict[str, tuple[str, ...]] = {
    "its handler succeeds": ("subscribe_one_that_waits", "end_waits"),
    "its handler leaves before it runs": ("subscribe_one_that_waits", "unsubscribe"),
    "its agent acks": ("attach", "take", "ack_taken"),
    "its agent releases it": ("attach", "take", "release_taken"),
    "its agent leaves before its delivery": ("attach", "detach"),
    "it is acked by lease": ("attach", "lease_and_ack"),
    "it is released by lease": ("attach", "lease_and_release"),
    "its breaker is reset": ("attach", "reset"),
    "the relay restarts": ("attach", "restart"),
    "the relay restarts during its delivery": ("attach", "take", "restart"),
}
FAILURES: dict[str, tuple[str, ...]] = {
    "its agent nacks": ("attach", "take", "nack_taken"),
    "its agent disconnects with it": ("attach", "take", "detach"),
    "it is nacked by lease": ("attach", "lease_and_nack"),
    "its lease times out": ("attach", "lease", "time_leases_out"),
}


@pytest.mark.parametrize("steps", ENDS.values(), ids=ENDS)
async def test_a_probe_that_ends_gives_its_slot_back(tmp_path: Path, steps) -> None:
    async with probed_relay(tmp_path) as one:
        consumer, *ends = steps
        await one.half_open(getattr(one, consumer))
        for end in ends:
            await getattr(one, end)()
        assert one.slots_in_use() == 0
        assert await one.publish() == 1


@pytest.mark.parametrize("steps", FAILURES.values(), ids=FAILURES)
async def test_a_probe_that_fails_gives_its_slot_back_and_opens_the_breaker(
    tmp_path: Path, steps
) -> None:
    async with probed_relay(tmp_path) as one:
        consumer, *ends = steps
        await one.half_open(getattr(one, consumer))
        for end in ends:
            await getattr(one, end)()
        assert (one.slots_in_use(), await one.publish()) == (0, 0)
        await one.cool_down()
        assert await one.publish() == 1


async def test_a_probe_that_expires_or_is_evicted_gives_its_slot_back(tmp_path: Path) -> None:
    async with probed_relay(tmp_path, probes=2) as one:
        await one.half_open(one.attach)
        await one.publish_for_a_second()
        assert one.slots_in_use() == 2
        await one.sweep()
        await one.relay.sync()
        (probe,) = one.live_probes()
        await one.publish_much()
        await one.relay.sync()
        assert [event["id"] for event in events(tmp_path, "evicted")] == [probe]
        assert one.slots_in_use() == 1


async def test_a_handler_that_leaves_before_its_probe_is_durable_leaves_no_slot_behind(
    tmp_path: Path,
) -> None:
    async with probed_relay(tmp_path) as one:
        await one.subscribe_one_that_fails()
        await one.publish()
        await one.relay.idle()
        await one.cool_down()
        await one.unsubscribe_before_it_is_durable()
        assert one.slots_in_use() == 0
        assert await one.publish() == 1


async def test_another_consumer_that_is_still_there_ends_the_probe(tmp_path: Path) -> None:
    async with probed_relay(tmp_path) as one:
        await one.half_open(one.attach)
        await one.subscribe_one_that_waits()
        await one.unsubscribe()
        assert one.slots_in_use() == 1
        await one.take()
        await one.ack_taken()
        assert one.relay.metrics().breakers["agent.a"].half_open_successes == 1


STEPS = [
    "publish",
    "publish",
    "publish_for_a_second",
    "publish_for_a_second",
    "publish_much",
    "publish_much",
    "publish_with_a_spent_budget",
    "subscribe",
    "subscribe_one_that_fails",
    "subscribe_one_that_waits",
    "unsubscribe",
    "unsubscribe_before_it_is_durable",
    "end_waits",
    "attach",
    "attach",
    "take",
    "nack_taken",
    "release_taken",
    "ack_taken",
    "detach",
    "lease",
    "lease_and_ack",
    "lease_and_nack",
    "lease_and_release",
    "time_leases_out",
    "cool_down",
    "cool_down",
    "sweep",
    "redrive",
    "purge",
    "reset",
    "unregister",
    "register_again",
    "restart",
]


async def walk(steps: list[str], data: Path) -> None:
    async with probed_relay(data, probes=2) as one:
        await one.subscribe_one_that_fails()
        await one.publish()
        await one.relay.idle()
        for step in steps:
            await getattr(one, step)()
            while one.relay.durable() is not None:
                await one.relay.sync()
            assert one.slots_in_use() == len(one.live_probes()), step
        await one.detach()
        while one.stops:
            await one.unsubscribe()
        await one.end_waits()
        await one.time_leases_out()
        assert one.slots_in_use() == 0


@examples(max_examples=40)
@given(st.lists(st.sampled_from(STEPS), min_size=5, max_size=40))
def test_slots_in_use_are_the_live_probes(steps: list[str]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(walk(steps, Path(directory)))
