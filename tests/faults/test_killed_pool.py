"""A relay killed under a pool: its workers continue, and no message is lost."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.harness.relay_process import RelayProcess
from waypost.client import Agent, Identity, connect

pytestmark = pytest.mark.process

MESSAGES = 300


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[], RelayProcess]:
    """Starts the relay of one directory, always on the same port."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    unlimited = {"reliability": {"rateLimit": {"enabled": False}}, "qos": {"enabled": False}}
    (data / "config.json").write_text(json.dumps(unlimited))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    arguments = ["-m", "waypost", "serve", "--data-dir", str(data), "--port", port]
    return lambda: RelayProcess(arguments, tmp_path / "serve.log", ready="Stop with Ctrl-C")


class Worker:
    """Acknowledges messages as they arrive; `done` are their payloads."""

    def __init__(self, agent: Agent) -> None:
        self.done: set[object] = set()
        self._agent = agent
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async for message in self._agent:
            self.done.add(message.payload)
            await message.ack()


async def test_a_killed_relay_loses_no_message_of_a_pool(
    serve: Callable[[], RelayProcess],
) -> None:
    relay = await asyncio.to_thread(serve)
    pool = Identity.new("agent.pool")
    workers: list[Worker] = []

    def done() -> set[object]:
        return set().union(*(worker.done for worker in workers))

    async with AsyncExitStack() as stack:
        for _ in range(3):
            agent = await stack.enter_async_context(connect(relay.url, pool, shared=True))
            workers.append(Worker(agent))
        sender = await stack.enter_async_context(connect(relay.url, Identity.new("agent.web")))
        messages = [{"subject": "agent.pool", "payload": number} for number in range(MESSAGES)]
        sending = asyncio.create_task(sender.send_many(messages))
        for some in range(MESSAGES // 4, MESSAGES, MESSAGES // 4):
            await eventually(partial(lambda least: len(done()) >= least, some), f"{some} messages")
            await asyncio.to_thread(relay.end, signal.SIGKILL)
            relay = await asyncio.to_thread(serve)
        assert all(one.delivered_to == 1 for one in await sending)
        await eventually(lambda: done() == set(range(MESSAGES)), "every message to be done")
        assert all(worker.done for worker in workers)
        for worker in workers:
            worker.task.cancel()
    await asyncio.to_thread(relay.end)
