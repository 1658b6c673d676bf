"""`./run bench flood`: the effect of hostile crowds on agents that are not their target.

Fifty agents talk in pairs through one served relay with default settings. First alone, then while
each of these attacks from a process of its own: an unknown sender with 10,000 messages for one of
them; thousands of idle sockets; connections that send tiny WebSocket frames; batches of publishes
to all endpoints, without a key and with many. Measures the latency from `send` to the reply, and
how much the memory of the relay grows.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.crowds import CROWDS, FLOODER
from bench.peers.served_relay import WaypostServer
from bench.program import Benchmark, Found, run_one
from bench.tables import Table
from bench.turns import Log

if TYPE_CHECKING:
    from waypost.client import Agent

PEERS = 50
TALK_S = 12.0
PAUSE_S = 0.7
"""Each agent sends at most 86 messages a minute; the rate limit is 100."""
REST_S = 3.0
SAMPLE_S = 0.2
TITLES = {
    "sender": "one sender, 10,000 messages",
    "idle": "5,000 idle sockets",
    "frames": "tiny frames on 16 sockets",
    "patterns": "patterns, in batches",
}


@dataclass(slots=True)
class Phase:
    """What the peers saw: latencies in ms, and growth of the relay's memory in MB."""

    exchanges: int
    p50_ms: float
    p95_ms: float
    ratio: float = 1.0
    memory_growth_mb: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the length of a phase, and the choice of crowds."""
    parser.add_argument("--seconds", type=float, default=TALK_S, help="length of each measurement")
    parser.add_argument("--rest", type=float, default=REST_S, help="seconds after each crowd")
    parser.add_argument(
        "--crowd", action="append", choices=CROWDS, help="one crowd (repeatable; default: all)"
    )


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure a quiet phase, then one for each crowd."""
    phases = await _run(options, scratch, log)
    found = {name: asdict(phase) for name, phase in phases.items()}
    return {"phase_seconds": options.seconds, "phases": found}


def tables(found: Found) -> list[Table]:
    """Return what the peers saw, and the outcomes of the attacks."""
    phases = found["phases"]
    rows = [
        [
            TITLES.get(name, name),
            f"{phase['exchanges']:,}",
            f"{phase['p50_ms']:.2f}",
            f"{phase['p95_ms']:.2f}",
            f"{phase['ratio']:.2f}",
            f"{phase['memory_growth_mb']:+.0f}",
        ]
        for name, phase in phases.items()
    ]
    attempts = [
        [TITLES[name], ", ".join(f"{count:,} {one}" for one, count in phase["outcomes"].items())]
        for name, phase in phases.items()
        if phase["outcomes"]
    ]
    return [
        Table(
            f"Request and reply of {PEERS} agents, ms; memory of the relay, MB",
            ["crowd", "exchanges", "p50", "p95", "ratio", "memory"],
            rows,
        ),
        Table("Outcomes of the attacks", ["crowd", "attempts"], attempts),
    ]


async def _run(options: argparse.Namespace, scratch: Path, log: Log) -> dict[str, Phase]:
    seconds: float = options.seconds
    server = WaypostServer({"storage": "journal"})
    await server.start(scratch)
    try:
        async with contextlib.AsyncExitStack() as stack:
            peers = [
                await stack.enter_async_context(server.agent(f"agent.peer-{number}"))
                for number in range(PEERS)
            ]
            pairs = list(zip(peers[::2], peers[1::2], strict=True))
            answering = [asyncio.create_task(_answer(second)) for _, second in pairs]
            log("quiet")
            await _talk(pairs, min(2.0, seconds))  # raises their tiers
            quiet = _phase(await _talk(pairs, seconds))
            phases = {"quiet": quiet}
            for crowd in options.crowd or CROWDS:
                log(TITLES[crowd])
                phases[crowd] = await _attack(server, crowd, pairs, options)
                phases[crowd].ratio = phases[crowd].p50_ms / quiet.p50_ms
            for task in answering:
                task.cancel()
            return phases
    finally:
        server.stop()


async def _attack(
    server: WaypostServer,
    crowd: str,
    pairs: "list[tuple[Agent, Agent]]",
    options: argparse.Namespace,
) -> Phase:
    """Measure during one attack; rest afterwards, until its connections have ended."""
    before = server.memory_bytes
    command = (sys.executable, "-m", "bench.crowds", crowd, server.url)
    attack = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    largest = asyncio.create_task(_largest_memory(server, before))
    try:
        await asyncio.sleep(1.0)  # until the crowd is there
        phase = _phase(await _talk(pairs, options.seconds))
    finally:
        output, _ = await attack.communicate(b"stop\n")
    phase.outcomes = json.loads(output)
    await asyncio.sleep(options.rest)
    largest.cancel()
    phase.memory_growth_mb = (await largest - before) / 1e6
    return phase


async def _largest_memory(server: WaypostServer, largest: int) -> int:
    """Return the largest memory of the relay until this task is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            largest = max(largest, server.memory_bytes)
            await asyncio.sleep(SAMPLE_S)
    return largest


def _phase(times: list[float]) -> Phase:
    return Phase(len(times), statistics.median(times), statistics.quantiles(times, n=20)[18])


async def _talk(pairs: "list[tuple[Agent, Agent]]", seconds: float) -> list[float]:
    """Return the ms from send to reply, of all pairs talking at once."""
    times: list[float] = []

    async def one(agent: "Agent", other: "Agent") -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            await agent.send(other.subject, {"how": "are you?"})
            await _wait_for_reply(agent, other.subject)
            times.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(one(agent, other) for agent, other in pairs))
    return times


async def _wait_for_reply(agent: "Agent", other: str) -> None:
    """Wait for the reply of `other`; messages of the one sender are not acknowledged."""
    while True:
        message = await agent.receive(timeout=60)
        if message.sender == other:
            await message.ack()
            return
        if message.sender != FLOODER:
            await message.ack()


async def _answer(agent: "Agent") -> None:
    async for message in agent:
        if message.sender.startswith("agent.peer-"):
            await agent.send(message.sender, {"thanks": "well"})
        await message.ack()


BENCHMARK = Benchmark(
    "flood", __doc__, measure, tables, ("--seconds", "0.7", "--rest", "0.3"), add_options
)

if __name__ == "__main__":
    run_one(BENCHMARK)
