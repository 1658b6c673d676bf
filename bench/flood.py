"""`./run bench flood`: the effect of a flood on agents that are not its target.

Fifty agents talk in pairs through one served relay with default quotas. First alone, then while an
unknown sender tries to send 10,000 messages to one of them. Measures the latency from `send` to the
reply, and how many messages of the flooder were accepted.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.peers.served_relay import UNREACHED, WaypostServer

if TYPE_CHECKING:
    from waypost.client import Agent

PEERS = 50
ATTEMPTS = 10_000
TALK_S = 12.0
PAUSE_S = 0.25
MARK = 1.5
VICTIM = "agent.peer-0"
CONFIG: dict[str, Any] = {
    "storage": "journal",
    # The agents send more than 100 messages a minute; quotas have their defaults.
    "reliability": {"rateLimit": {"maxPerWindow": UNREACHED}},
}


def main() -> None:
    """Measure, then print a table or JSON."""
    parser = argparse.ArgumentParser(prog="./run bench flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=TALK_S, help="length of each measurement")
    parser.add_argument(
        "--data-dir", type=Path, default=Path.cwd(), help="directory for the relay's files"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        quiet, flooded, outcomes = asyncio.run(_run(options.seconds, Path(scratch)))
    ratio = statistics.median(flooded) / statistics.median(quiet)
    if options.json:
        found = {"quiet_p50_ms": statistics.median(quiet), "ratio": ratio, "flooder": outcomes}
        print(json.dumps(found, indent=2))
        return
    shown = Table(title=f"Request and reply of {PEERS} agents, ms")
    for heading in ("", "messages", "p50", "p95"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, times in (("quiet", quiet), ("during the flood", flooded)):
        p95 = statistics.quantiles(times, n=20)[18]
        shown.add_row(name, f"{len(times):,}", f"{statistics.median(times):.2f}", f"{p95:.2f}")
    Console().print(shown)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    Console().print(f"ratio of the medians {ratio:.2f} (mark: {MARK}); the flooder: {counts}")


async def _run(seconds: float, scratch: Path) -> tuple[list[float], list[float], dict[str, int]]:
    server = WaypostServer(CONFIG)
    await server.start(scratch)
    try:
        async with contextlib.AsyncExitStack() as stack:
            peers = [
                await stack.enter_async_context(server.agent(f"agent.peer-{number}"))
                for number in range(PEERS)
            ]
            pairs = list(zip(peers[::2], peers[1::2], strict=True))
            answering = [asyncio.create_task(_answer(second)) for _, second in pairs]
            await _talk(pairs, 2.0)  # raises their tiers
            quiet = await _talk(pairs, seconds)
            flooder = await stack.enter_async_context(server.agent("agent.flooder"))
            outcomes: Counter[str] = Counter()
            flooding = asyncio.create_task(_flood(flooder, outcomes))
            flooded = await _talk(pairs, seconds)
            flooding.cancel()
            for task in answering:
                task.cancel()
            return quiet, flooded, dict(outcomes)
    finally:
        server.stop()


async def _talk(pairs: "list[tuple[Agent, Agent]]", seconds: float) -> list[float]:
    """Return the ms from send to reply, of all pairs talking at once."""
    times: list[float] = []

    async def one(agent: "Agent", other: "Agent") -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            await agent.send(other.subject, {"how": "are you?"})
            if agent.subject == VICTIM:
                await _wait_for_reply(agent, other.subject)
            else:
                message = await agent.receive(timeout=30)
                await message.ack()
            times.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(one(agent, other) for agent, other in pairs))
    return times


async def _wait_for_reply(agent: "Agent", other: str) -> None:
    """Wait for the reply of `other`; messages of the flooder are not acknowledged."""
    while True:
        message = await agent.receive(timeout=30)
        if message.sender == other:
            await message.ack()
            return


async def _answer(agent: "Agent") -> None:
    async for message in agent:
        await agent.send(message.sender, {"thanks": "well"})
        await message.ack()


async def _flood(agent: "Agent", outcomes: Counter[str]) -> None:
    for begin in range(0, ATTEMPTS, 100):
        wanted = [{"subject": VICTIM, "payload": begin + number} for number in range(100)]
        for result in await agent.send_many(wanted):
            outcomes["accepted" if result.delivered_to else str(result.rejected[0].reason)] += 1


if __name__ == "__main__":
    main()
