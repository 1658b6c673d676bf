"""Journals to measure with, written by real relays on manual clocks."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from bench.embedded import open_settings
from waypost import Relay
from waypost.simulate import SimulationOptions, simulate
from waypost.simulate.options import simulated_settings
from waypost.testing import ManualClock

MESSAGES_MAX = 330_000
"""Messages of one journal: about a million events. Larger sizes read it under several names."""

DAYS = 3.0
TRACE_LINES, TRACE_DAYS, TRACE_NAMES = 39_264, 300, 2_000
TRACE_BEGIN_S = 1_082_040_961
_AGENTS_MIN, _AGENTS_MAX = 40, 200
_BATCH = 250
_SENDERS = 50


class Journal(NamedTuple):
    """A data directory with a sealed journal. `arrivals` lack rejections that were only counted."""

    data: Path
    events: int
    arrivals: int
    bytes: int

    def copies_for_events(self, wanted: int) -> int:
        """Return the number of copies with about `wanted` events."""
        return max(1, round(wanted / self.events))

    def copies_for_arrivals(self, wanted: int) -> int:
        """Return the number of copies with about `wanted` messages."""
        return max(1, round(wanted / self.arrivals))


class _Line(msgspec.Struct):
    kind: str
    since_us: int = 0
    ids: list[str] = []


def make_traffic(data: Path, size: int) -> Journal:
    """Simulate all kinds of traffic in about `size` events, at most about a million."""
    messages = min(MESSAGES_MAX, size * 2 // 5)
    agents = max(_AGENTS_MIN, min(_AGENTS_MAX, messages // 500))
    simulate(SimulationOptions(messages=messages, out=data, agents=agents, seed=7, days=DAYS))
    return describe(data)


def make_payloads(data: Path, messages: int, payload_bytes: int) -> Journal:
    """Send, lease and acknowledge `messages` with payloads of one size."""
    asyncio.run(_send(data, messages, "x" * (payload_bytes - 2)))
    return describe(data)


def make_trace(file: Path) -> int:
    """Write a trace of messages between people, as uneven as real ones; return its lines."""
    random, day_s = Random(7), 86_400
    times = sorted(int(random.random() * TRACE_DAYS * day_s) for _ in range(TRACE_LINES))
    with file.open("w") as lines:
        for at_s in times:
            sender, recipient = (int(random.paretovariate(0.7)) % TRACE_NAMES for _ in range(2))
            lines.write(f"{sender} {recipient} {TRACE_BEGIN_S + at_s}\n")
    return TRACE_LINES


def describe(data: Path) -> Journal:
    """Count the events of a journal."""
    kinds: Counter[str] = Counter()
    decode = msgspec.json.Decoder(_Line).decode
    paths = segments(data)
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                parsed = decode(line)
                counted = parsed.kind == "rejected" and parsed.since_us > 0
                kinds["counted" if counted else parsed.kind] += max(1, len(parsed.ids))
    return Journal(
        data,
        events=kinds.total() - kinds["commit"],
        arrivals=kinds["accepted"] + kinds["rejected"],
        bytes=sum(path.stat().st_size for path in paths),
    )


def segments(data: Path) -> list[Path]:
    """Return the segment files of a journal, in order."""
    return sorted((data / "journal").glob("*.jsonl"))


def halved() -> bytes:
    """Return a settings file with half of every limit of the simulated relay."""
    was = simulated_settings(int(DAYS * 86_400_000_000))
    tiers = {"tier1": was.qos.tier1, "tier2": was.qos.tier2, "tier3": was.qos.tier3}
    document = {
        "reliability": {
            "rateLimit": {"maxPerWindow": was.rate_limit.max_per_window // 2},
            "backpressure": {"maxMailboxSize": was.backpressure.max_mailbox_size // 2},
        },
        "qos": {
            **{
                name: {"maxEnvelopes": limits.max_envelopes // 2, "maxBytes": limits.max_bytes // 2}
                for name, limits in tiers.items()
            },
            "inboxMaxBytes": was.qos.inbox_max_bytes // 2,
        },
    }
    return msgspec.json.encode(document)


async def _send(data: Path, messages: int, payload: str) -> None:
    clock = ManualClock(1_767_225_600_000_000)
    async with Relay(data, settings=open_settings(durability="async"), clock=clock) as relay:
        relay.register_endpoint("agent.sink")
        for begin in range(0, messages, _BATCH):
            for number in range(begin, min(begin + _BATCH, messages)):
                sender = f"agent.sender-{number % _SENDERS}"
                await relay.publish("agent.sink", payload, sender=sender)
                clock.advance_ms(20)
            leased = await relay.lease("agent.sink", limit=_BATCH)
            await relay.ack("agent.sink", [envelope.id for envelope in leased])
        await relay.seal_journal()
