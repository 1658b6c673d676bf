"""Signals to agents of other partitions, and their presence, over a real NATS server."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.cluster.cluster_processes import ClusterProcesses, running_cluster
from tests.eventually import eventually
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.client.http import HttpClient
from waypost.cluster.live_agents import CarriedSignal
from waypost.cluster.streams import connect as connect_servers
from waypost.cluster.streams import disconnect
from waypost.policy.partitions import partition_of
from waypost.wire.cards import AgentList
from waypost.wire.payloads import Signal, SignalType

pytestmark = [pytest.mark.process, pytest.mark.slow]
OPTIONS = ClientOptions(connect_timeout_s=60.0)
PARTITIONS = 2
SIGNALS_PER_PAIR_MAX = 50


def subject_in(partition: int) -> str:
    names = (f"agent.n{number}" for number in itertools.count())
    return next(one for one in names if partition_of(one, PARTITIONS) == partition)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterProcesses]:
    async with running_cluster(tmp_path, servers=1, nodes=2, partitions=PARTITIONS) as running:
        yield running


async def test_a_signal_reaches_an_agent_at_another_node_and_its_presence_is_known(
    cluster: ClusterProcesses,
) -> None:
    here, there = subject_in(0), subject_in(1)
    async with AsyncExitStack() as stack:
        agents: list[Agent] = []
        for subject in (here, there):
            opening = connect(cluster.urls, Identity.new(subject), options=OPTIONS)
            agents.append(await stack.enter_async_context(opening))
        sender, recipient = agents
        got: list[tuple[str, str]] = []

        recipient.on_signal(lambda sender, signal: got.append((sender, signal.state)))

        def is_received() -> bool:
            now = datetime.now(UTC)
            typing = SignalType.TYPING
            sender.signal(
                there, Signal(type=typing, state="on", endpoint_subject=here, timestamp=now)
            )
            return (here, "on") in got

        await eventually(is_received, "a signal", timeout_s=60)
        await _flood(cluster, there)
        await eventually(lambda: ("agent.flooding", "on") in got, "a carried signal", timeout_s=60)
        shown = await asyncio.to_thread(_directory, cluster, Identity.new("agent.viewer"))
        assert {here: True, there: True}.items() <= shown.items()
        assert {one for one, _ in got} == {here, "agent.flooding"}
        assert got.count(("agent.flooding", "on")) <= SIGNALS_PER_PAIR_MAX


async def _flood(cluster: ClusterProcesses, subject: str) -> None:
    """Publish what no node sends, malformed or too often: a partition drops it and stays."""
    client = await connect_servers(cluster.server_urls)
    now = datetime.now(UTC)
    typing = Signal(type=SignalType.TYPING, state="on", endpoint_subject=subject, timestamp=now)
    carried = msgspec.json.encode(CarriedSignal("agent.flooding", subject, typing))
    for _ in range(10 * SIGNALS_PER_PAIR_MAX):
        await client.publish("waypost.tests.1.signal", carried)
    for data in (b"", b"{", b"[" * 10_000, b'{"sender":"agent.x","subject":"a..b","signal":{}}'):
        for name in ("signal", "presence", "decide"):
            await client.publish(f"waypost.tests.1.{name}", data)
    await client.flush()
    await disconnect(client)


def _directory(cluster: ClusterProcesses, viewer: Identity) -> dict[str, bool]:
    client = HttpClient(cluster.urls)
    try:
        token = client.log_in(viewer)
        found = client.get("/v1/agents", AgentList, token=token)
        return {one.subject: one.connected for one in found.agents}
    finally:
        client.close()
