"""`./run demo --cluster`: agents talk through three relays, and one of these is killed.

Three NATS servers and three relays run as processes of their own. Every agent knows all three
addresses and nothing else. The summary compares what senders were promised with what arrived.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from examples.demo.cluster_processes import NODES, PARTITIONS, SERVERS, DemoCluster
from examples.demo.output import console, print_line, print_title
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.client.errors import ClientError
from waypost.cluster.address import parse_cluster
from waypost.cluster.owners import move, owner_of
from waypost.cluster.shared_values import SharedValues
from waypost.cluster.streams import connect as connect_servers
from waypost.cluster.streams import disconnect

TEAMS = ("billing", "search", "travel", "legal", "press", "stock")
OPTIONS = ClientOptions(connect_timeout_s=60.0, send_timeout_s=60.0)
PAUSE_S = 0.6
"""Between an answer and the next question: with the default limits of a relay in mind."""
TALK_S = 6.0
PATIENCE_S = 60.0
POLL_S = 0.1


class Talk:
    """What agents sent and received; ids of messages, with the time at which they were stored."""

    def __init__(self) -> None:
        self.stored: dict[str, float] = {}
        self.found: Counter[str] = Counter()
        self.waits: list[tuple[float, str]] = []
        self.errors: list[str] = []
        self.is_over = False

    async def ask(self, agent: Agent, recipient: str) -> None:
        """Ask, and read the answers, until it is over."""
        number = 0
        while not self.is_over:
            number += 1
            await self._send(agent, recipient, {"question": number})
            await asyncio.sleep(PAUSE_S)

    async def answer(self, agent: Agent) -> None:
        """Answer every question."""
        async for message in agent:
            async with message:
                self.found[message.id] += 1
                if "question" in message.payload:
                    await self._send(agent, message.sender, {"answer": message.payload["question"]})

    async def all_found(self) -> None:
        """Wait until everything that was stored has been received."""
        async with asyncio.timeout(PATIENCE_S):
            while self.stored.keys() - self.found.keys():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def _send(self, agent: Agent, recipient: str, payload: dict[str, int]) -> None:
        began = time.monotonic()
        try:
            result = await agent.send(recipient, payload)
        except ClientError as problem:
            self.errors.append(str(problem))
            return
        if result.delivered_to:
            self.stored[result.message_id] = time.monotonic()
            self.waits.append((time.monotonic() - began, agent.subject))


async def run_cluster_demo() -> bool:
    """Run the demo; return whether nothing was lost."""
    cluster = DemoCluster()
    try:
        print_title(f"{SERVERS} NATS servers and {len(NODES)} relays start on this machine")
        print_line(f"waypost cluster create {cluster.address} --partitions {PARTITIONS}")
        for node in NODES:
            print_line(f"waypost serve --cluster … --node {node} --advertise {cluster.url(node)}")
        await asyncio.to_thread(cluster.start)
        before = await _share_out(cluster)
        _print_owners(before)
        return await _talk_and_kill(cluster, before)
    finally:
        await asyncio.to_thread(cluster.stop)


async def _talk_and_kill(cluster: DemoCluster, before: dict[int, str]) -> bool:
    talk = Talk()
    async with _agents(cluster, talk) as senders:
        print_title("Agents talk")
        await asyncio.sleep(TALK_S)
        print_line(f"{len(talk.stored):,} messages stored so far")
        victim = Counter(before.values()).most_common(1)[0][0]
        lost = sorted(number for number, owner in before.items() if owner == victim)
        print_title(f"{victim} is killed, with the partitions {_list(lost)}")
        killed_at, stored_before = time.monotonic(), len(talk.stored)
        await asyncio.to_thread(cluster.kill, victim)
        after = await _owners(cluster, lambda owners: victim not in owners.values())
        for number in lost:
            print_line(f"partition {number}: {after[number]} took over")
        print_line(f"every partition has an owner again after {time.monotonic() - killed_at:.1f} s")
        await asyncio.sleep(TALK_S)
        talk.is_over = True
        await asyncio.wait(senders)
        await talk.all_found()
    return _print_summary(talk, victim, stored_before)


@asynccontextmanager
async def _agents(cluster: DemoCluster, talk: Talk) -> "AsyncIterator[list[asyncio.Task[None]]]":
    """Connect two agents of each team; yield the tasks of those that ask."""
    async with AsyncExitStack() as stack:
        agents: dict[str, Agent] = {}
        for subject in (f"agent.{team}.{role}" for team in TEAMS for role in ("ask", "reply")):
            opened = connect(cluster.urls, Identity.new(subject), options=OPTIONS)
            agents[subject] = await stack.enter_async_context(opened)
        tasks = [asyncio.create_task(talk.answer(agent)) for agent in agents.values()]
        asking = [
            asyncio.create_task(talk.ask(agents[f"agent.{team}.ask"], f"agent.{other}.reply"))
            for team, other in zip(TEAMS, (*TEAMS[1:], TEAMS[0]), strict=True)
        ]
        try:
            yield asking
        finally:
            for task in (*tasks, *asking):
                task.cancel()
            await asyncio.gather(*tasks, *asking, return_exceptions=True)


async def _share_out(cluster: DemoCluster) -> dict[int, str]:
    """Give each node as many partitions, as `waypost cluster move` does; return the owners."""
    wanted = {number: NODES[number % len(NODES)] for number in range(PARTITIONS)}
    async with _values(cluster) as values:
        for number, node in wanted.items():
            await move(values, number, node)
    return await _owners(cluster, lambda owners: owners == wanted)


async def _owners(cluster: DemoCluster, holds: Callable[[dict[int, str]], bool]) -> dict[int, str]:
    """Return the owner of each partition, once all have one and `holds` is true."""
    async with asyncio.timeout(PATIENCE_S), _values(cluster) as values:
        while True:
            known = {number: owner_of(values, number) for number in range(PARTITIONS)}
            owners = {number: one.node for number, one in known.items() if one is not None}
            if len(owners) == PARTITIONS and holds(owners):
                return owners
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def _values(cluster: DemoCluster) -> AsyncIterator[SharedValues]:
    """Read what the nodes let each other know."""
    address = parse_cluster(cluster.address)
    client = await connect_servers(address.servers)
    try:
        values = await SharedValues.open(client.jetstream(), address.name)
        try:
            yield values
        finally:
            await values.close()
    finally:
        await disconnect(client)


def _print_owners(owners: dict[int, str]) -> None:
    for node in NODES:
        own = [number for number, owner in owners.items() if owner == node]
        print_line(f"{node} owns {_list(own) if own else 'no partition yet'}")


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _print_summary(talk: Talk, victim: str, stored_before: int) -> bool:
    print_title("What the agents noticed")
    stored, found = len(talk.stored), len(talk.stored.keys() & talk.found.keys())
    again = sum(number - 1 for number in talk.found.values())
    longest, waiting = max(talk.waits)
    usual = sorted(wait for wait, _ in talk.waits)[len(talk.waits) // 2]
    verdict = "Nothing is lost" if stored == found else "MESSAGES ARE LOST"
    print_line(f"{verdict}: {stored:,} messages confirmed to senders, {found:,} received.")
    print_line(f"{stored - stored_before:,} of them were sent after {victim} was killed.")
    print_line(
        f"Longest wait of a publish: {longest:.1f} s ({waiting}); half of them took"
        f" {usual * 1000:.0f} ms or less."
    )
    print_line(f"Errors that agents saw: {len(talk.errors)}. Messages received twice: {again}.")
    console.print()
    return stored == found
