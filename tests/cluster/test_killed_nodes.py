"""Servers and nodes are killed at random under load: nothing is lost, doubled or out of order.

WAYPOST_KILLS sets how many; the waits of publishes are printed (`pytest -s`).
"""

import asyncio
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from tests.cluster.cluster_processes import ClusterProcesses, running_cluster
from tests.eventually import eventually
from tests.faults.seeds import seeded
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.client.errors import ClientError
from waypost.wire.events import Accepted, Acked, Leased, decode_event, split
from waypost.wire.journal_batches import ValidBatch, read_batches

pytestmark = [pytest.mark.process, pytest.mark.slow]
KILLS = int(os.environ.get("WAYPOST_KILLS", "4"))
AGENTS = [f"agent.team{number}" for number in range(6)]
OPTIONS = ClientOptions(send_timeout_s=120.0, connect_timeout_s=60.0)


class Talk:
    """Messages that agents send each other, and what they know of them."""

    def __init__(self, choose: random.Random) -> None:
        self.stored: dict[str, tuple[str, str, int]] = {}
        self.received: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.seen: set[str] = set()
        self.waits: list[tuple[float, float]] = []
        """When each publish began and ended."""
        self.kills: list[float] = []
        self.is_over = False
        self._choose = choose
        self._next: dict[tuple[str, str], int] = defaultdict(int)

    async def send(self, agent: Agent) -> None:
        """Send one message after the other, each until it is stored."""
        loop = asyncio.get_running_loop()
        while not self.is_over:
            recipient = self._choose.choice(AGENTS)
            pair = (agent.subject, recipient)
            self._next[pair] += 1
            number, message_id = self._next[pair], _id(*pair, self._next[pair])
            begin = loop.time()
            while True:
                try:
                    payload = {"number": number}
                    result = await agent.send(recipient, payload, message_id=message_id)
                except (ClientError, TimeoutError):
                    continue
                if result.delivered_to:
                    break
                await asyncio.sleep(0.05)
            self.waits.append((begin, loop.time()))
            self.stored[message_id] = (*pair, number)

    async def receive(self, agent: Agent) -> None:
        async for message in agent:
            pair = (message.sender, agent.subject)
            if message.id not in self.seen:
                self.seen.add(message.id)
                self.received[pair].append(message.payload["number"])
            await message.ack()

    def check(self) -> None:
        assert self.stored.keys() <= self.seen
        for pair, numbers in self.received.items():
            assert numbers == sorted(numbers), pair
            assert len(numbers) == len(set(numbers)), pair


async def kill(cluster: ClusterProcesses, talk: Talk, choose: random.Random) -> None:
    """Kill a server or a node, and start it again a little later."""
    victim = choose.choice([*cluster.servers, *cluster.nodes])
    talk.kills.append(asyncio.get_running_loop().time())
    await asyncio.to_thread(victim.kill)
    await asyncio.sleep(choose.uniform(0.0, 3.0))
    await asyncio.to_thread(victim.start)
    await asyncio.sleep(choose.uniform(0.0, 2.0))


async def all_received(talk: Talk) -> None:
    await eventually(lambda: talk.stored.keys() <= talk.seen, "all messages", timeout_s=120)


def acked_and_delivered_again(journal: Path) -> list[str]:
    """Return the ids that a journal leases or stores after they were acknowledged."""
    acked: set[tuple[str, str]] = set()
    again: list[str] = []
    for path in sorted([*journal.glob("*.jsonl"), *journal.glob("*.open")]):
        data = path.read_bytes()
        for batch in read_batches(data):
            if not isinstance(batch, ValidBatch):
                continue
            for line in data[batch.start : batch.stop].splitlines():
                again += _again(line, acked)
    return again


def _again(line: bytes, acked: set[tuple[str, str]]) -> list[str]:
    try:
        event = decode_event(line)
    except msgspec.ValidationError:
        return []
    found = []
    for one in split(event):
        if isinstance(one, Acked):
            acked.add((one.endpoint, one.id))
        elif isinstance(one, Leased | Accepted) and (one.endpoint, one.id) in acked:
            found.append(one.id)
    return found


async def test_killed_servers_and_nodes_lose_nothing(tmp_path: Path) -> None:
    with seeded() as choose:
        async with running_cluster(tmp_path) as cluster, asyncio.TaskGroup() as tasks:
            talk = Talk(choose)
            async with _connected(cluster) as agents:
                running = [tasks.create_task(talk.receive(agent)) for agent in agents]
                senders = [tasks.create_task(talk.send(agent)) for agent in agents]
                for _ in range(KILLS):
                    await kill(cluster, talk, choose)
                talk.is_over = True
                await asyncio.wait(senders)
                await all_received(talk)
                for task in running:
                    task.cancel()
        talk.check()
        for node in cluster.nodes:
            for directory in (node.directory / "partitions").iterdir():
                assert acked_and_delivered_again(directory / "journal") == []
        report(talk)


def report(talk: Talk) -> None:
    """Print how long publishes waited, by the number of kills meanwhile: the next one may come
    before the last is over."""
    slow = [(begin, end) for begin, end in talk.waits if end - begin > 1.0]
    sys.stdout.write(
        f"\n{len(talk.stored):,} messages, {KILLS} kills; publishes that waited for more than 1 s,"
        f" load {os.getloadavg()[1]:.0f}:\n"
    )
    for name, least, most in (("all", 0, KILLS), ("one kill", 0, 1), ("more kills", 2, KILLS)):
        waits = sorted(
            end - begin
            for begin, end in slow
            if least <= sum(begin - 1.0 <= one <= end for one in talk.kills) <= most
        )
        if waits:
            p50, worst = waits[len(waits) // 2], waits[-1]
            sys.stdout.write(f"  {name}: {len(waits)}, p50 {p50:.1f} s, worst {worst:.1f} s\n")


def _id(sender: str, recipient: str, number: int) -> str:
    return f"{sender}-{recipient}-{number}".replace(".", "_")


class _connected:  # noqa: N801 - reads as a function
    """Connects all agents, for a block."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._connecting = [
            connect(cluster.urls, Identity.new(subject), options=OPTIONS) for subject in AGENTS
        ]

    async def __aenter__(self) -> list[Agent]:
        return [await one.__aenter__() for one in self._connecting]

    async def __aexit__(self, *problem: object) -> None:
        for one in self._connecting:
            await one.__aexit__(None, None, None)
