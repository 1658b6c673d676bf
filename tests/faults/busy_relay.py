"""A relay under load, in its own process, to be killed by a test.

    python busy_relay.py DIRECTORY STORAGE SEED

Every confirmation is written to standard output at once, one line each:

    start                        the relay is about to open
    publish ENDPOINT ID SENDER N a publish returned; N counts up for each sender and endpoint
    ack ENDPOINT ID              an ack returned

Handlers first write the id of each message to DIRECTORY/handled.
"""

import asyncio
import logging
import os
import random
import sys
from pathlib import Path

from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    Draft,
    Envelope,
    HousekeepingConfig,
    PublishResult,
    RateLimitConfig,
    RedeliveryConfig,
    Relay,
    Settings,
)
from waypost.relay.state import checkpoints

QUEUES = ("agent.q0", "agent.q1", "agent.q2")
HANDLED = "agent.handled"
FAN = ("fan.left", "fan.right")
SENDERS = ("agent.s0", "agent.s1", "agent.s2")
LATE = "agent.late"
"""Sends messages that are delivered later."""
LARGE = "x" * 6_000


def settings(storage: str) -> Settings:
    """Return settings without limits and with small segments, so that seals are frequent."""
    return Settings(
        storage=storage,  # type: ignore[arg-type]
        rate_limit=RateLimitConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False),
        circuit_breaker=CircuitBreakerConfig(enabled=False),
        redelivery=RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1),
        housekeeping=HousekeepingConfig(segment_max_bytes=48 * 1024),
    )


def say(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Load:
    """Run publishers, consumers and a handler without end."""

    def __init__(self, relay: Relay, directory: Path, seed: int) -> None:
        self._relay = relay
        self._random = random.Random(seed)
        self._counts: dict[tuple[str, str], int] = {}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._log = os.open(directory / "handled", flags, 0o600)

    async def run(self) -> None:
        for subject in (*QUEUES, HANDLED, *FAN):
            self._relay.register_endpoint(subject)
        self._relay.subscribe(HANDLED, self._handle)
        async with asyncio.TaskGroup() as tasks:
            for sender in SENDERS:
                for subject in (*QUEUES, HANDLED):
                    tasks.create_task(self._publish(sender, subject))
                tasks.create_task(self._publish_many(sender))
            tasks.create_task(self._fan_out())
            for subject in (*QUEUES, HANDLED):
                tasks.create_task(self._schedule(subject))
            for subject in (*QUEUES, *FAN):
                tasks.create_task(self._consume(subject))

    async def _publish(self, sender: str, subject: str) -> None:
        while True:
            n = self._next(sender, subject)
            payload = {"n": n, "more": LARGE if self._random.random() < 0.05 else ""}
            result = await self._relay.publish(subject, payload, sender=sender)
            self._report(subject, sender, n, result)

    async def _publish_many(self, sender: str) -> None:
        while True:
            wanted = [(subject, self._next(sender, subject)) for subject in QUEUES for _ in "12"]
            drafts = [Draft(subject, {"n": n}, sender=sender) for subject, n in wanted]
            results = await self._relay.publish_many(drafts)
            for (subject, n), result in zip(wanted, results, strict=True):
                self._report(subject, sender, n, result)

    async def _schedule(self, subject: str) -> None:
        while True:
            n, delay = self._next(LATE, subject), self._random.choice((0.001, 0.02, 0.2, 0.5))
            result = await self._relay.publish(subject, {"n": n}, sender=LATE, delay=delay)
            self._report(subject, LATE, n, result)

    async def _fan_out(self) -> None:
        while True:
            n = self._next("agent.fan", FAN[0])
            result = await self._relay.publish("fan.*", {"n": n}, sender="agent.fan")
            for subject in FAN:
                self._report(subject, "agent.fan", n, result)

    async def _consume(self, subject: str) -> None:
        while True:
            leased = await self._relay.lease(subject, limit=9, wait=1.0)
            ids = [envelope.id for envelope in leased]
            fate = self._random.random()
            if fate < 0.1:
                await self._relay.nack(subject, ids)
            elif fate < 0.95:
                await self._relay.ack(subject, ids)
                for message_id in ids:
                    say("ack", subject, message_id)

    async def _handle(self, envelope: Envelope) -> None:
        os.write(self._log, f"{envelope.id}\n".encode())
        if self._random.random() < 0.1:
            await asyncio.sleep(0)
            raise ValueError("this one is too hard")

    def _next(self, sender: str, subject: str) -> int:
        self._counts[sender, subject] = self._counts.get((sender, subject), 0) + 1
        return self._counts[sender, subject]

    def _report(self, subject: str, sender: str, n: int, result: PublishResult) -> None:
        assert not result.rejected, result
        say("publish", subject, result.message_id, sender, n)


async def main(directory: Path, storage: str, seed: int) -> None:
    say("start")
    async with Relay(directory, settings=settings(storage)) as relay:
        await Load(relay, directory, seed).run()


if __name__ == "__main__":
    checkpoints._INTERVAL_S = 0.01  # so that kills also hit a checkpoint
    logging.basicConfig(level=logging.ERROR)  # what handlers raise is meant to be
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
