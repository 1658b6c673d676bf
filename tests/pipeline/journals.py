"""Writes journals with a real relay on a manual clock."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from waypost import QosConfig, Relay, Settings
from waypost.relay.journal.segments import Batch, list_segments, read_segment
from waypost.testing import ManualClock
from waypost.wire.events import AnyEvent

START_US = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC
SETTINGS = Settings(
    storage="journal", durability="async", watch_files=False, qos=QosConfig(enabled=True)
)


def write_journal(
    directory: Path,
    act: Callable[[Relay, ManualClock], Awaitable[None]],
    *,
    start_us: int = START_US,
) -> None:
    """Run `act` on a relay in `directory`, whose clock starts at `start_us`."""

    async def run() -> None:
        clock = ManualClock(start_us)
        async with Relay(directory, settings=SETTINGS, clock=clock) as relay:
            await act(relay, clock)

    asyncio.run(run())


async def some_traffic(relay: Relay, clock: ManualClock) -> None:
    """Let two agents publish, one above its rate limit; every stored message is acked."""
    relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.b")
    for number in range(150):
        await relay.publish("agent.a", {"n": number, "text": "x" * number}, sender="agent.b")
        clock.advance_ms(100)
        if number % 10 == 0:
            got = await relay.lease("agent.a", limit=100)
            await relay.ack("agent.a", [envelope.id for envelope in got])
            await relay.publish("agent.b", "more", sender="agent.a")


def events_in(directory: Path) -> list[AnyEvent]:
    """Return every committed event of a journal, as the relay itself reads it."""
    return [
        event
        for first_seq, path in list_segments(directory / "journal").items()
        for batch in read_segment(path, first_seq)
        if isinstance(batch, Batch)
        for event, _ in batch.events()
    ]
