"""Everything that wakes an idle agent, in processes of its own, before and after a crash."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.serve_process import ServeProcess, User, serving
from tests.eventually import eventually
from tests.mcp.models import Model, connected
from tests.mcp.processes import environment
from tests.mcp.test_waking import WaitingHost, subscribe
from tests.server.webhooks.receiver import Receiver, receiving
from waypost.client.webhooks import read_notice
from waypost.mcp.notices import INBOX_URI

ANSWER = "import json, sys; print(json.load(sys.stdin).upper())"
LONG_S = 60.0


def assistant(user: User, subject: str, *options: str) -> StdioServerParameters:
    """Return how a host starts `waypost mcp` for one of its assistants."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "waypost", "mcp", "--subject", subject, "--url", user.url, *options],
        env=environment(user.home),
    )


class Agents:
    """Four agents that wait idle, each in its way, and a planner that writes to them."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.host = WaitingHost()
        self.receiver: Receiver
        self.secret = ""
        self.planner: Model
        self.coder: Model

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agents"]:
        for subject in ("agent.planner", "agent.coder", "agent.hooked", "agent.worker"):
            await self.run("keys", "new", subject)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            self.receiver = await enter(receiving())
            url = f"http://127.0.0.1:{self.receiver.port}/wake"
            set_ = await self.run("webhooks", "set", "agent.hooked", url, "--json")
            self.secret = json.loads(set_)["secret"]
            planner = assistant(self.user, "agent.planner", "--skill", "planning")
            self.planner = await enter(connected(Client(stdio_client(planner))))
            coder = assistant(self.user, "agent.coder", "--skill", "python", "--channel")
            self.coder = await enter(connected(self.host.client(stdio_client(coder))))
            await subscribe(self.coder)
            command = f"'{sys.executable}' -c '{ANSWER}'"
            listener = self.user.start_command(
                "listen", "agent.worker", "--exec", command, "--reply"
            )
            stack.callback(listener.communicate, timeout=60)
            stack.callback(listener.send_signal, signal.SIGINT)
            yield self

    async def run(self, *arguments: str) -> str:
        return str((await asyncio.to_thread(self.user, *arguments)).stdout)

    async def all_are_woken(self, text: str) -> None:
        """Write to each of them; each is woken, and answers or acknowledges."""
        await self.the_host_is_woken_and_answers(text)
        await self.the_command_is_woken_and_answers(text)
        await self.the_receiver_is_woken(text)

    async def the_host_is_woken_and_answers(self, text: str) -> None:
        self.host.events.clear()
        self.host.updated.clear()
        sent = await self.planner.send("agent.coder", text)
        await eventually(lambda: self.host.events, "an event of the channel", timeout_s=LONG_S)
        await eventually(lambda: self.host.updated == [INBOX_URI], "an update of the resource")
        assert await self.coder.read(wait_seconds=0) == [(sent, text)]
        await self.coder.call_ok("relay_send", payload=f"{text}: done", in_reply_to=sent)
        await self.coder.call_ok("relay_ack", ids=[sent])
        await self.planner_reads(f"{text}: done")

    async def the_command_is_woken_and_answers(self, text: str) -> None:
        await self.planner.send("agent.worker", text)
        await self.planner_reads(text.upper())

    async def the_receiver_is_woken(self, text: str) -> None:
        self.receiver.posted.clear()
        await self.planner.send("agent.hooked", text)
        await eventually(lambda: self.receiver.posted, "a notice", timeout_s=LONG_S)
        posted = self.receiver.posted[0]
        notice = read_notice(self.secret, posted.headers, posted.body)
        assert (notice.data.subject, notice.data.waiting) == ("agent.hooked", 1)
        assert text in await self.run("inbox", "agent.hooked", "--ack")

    async def planner_reads(self, text: str) -> None:
        read = await self.planner.read(wait_seconds=50)
        assert [one for _, one in read] == [text]
        await self.planner.call_ok("relay_ack", ids=[one for one, _ in read])


def serve_again(tmp_path: Path, killed: ServeProcess) -> AbstractContextManager[ServeProcess]:
    """Kill a relay, and serve its directory again at the same address."""
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    return serving(tmp_path, "--port", killed.url.rpartition(":")[2])


@pytest.mark.slow
@pytest.mark.process
async def test_idle_agents_are_woken_in_four_ways_also_after_a_crash_of_the_relay(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "config.json").write_text('{"webhooks": {"privateHosts": ["127.0.0.1:*"]}}')
    with serving(tmp_path) as first:
        async with Agents(first.user()).running() as agents:
            await agents.coder.call_ok("relay_status")  # connects it
            found = await agents.planner.call_ok("relay_find_agents", skill="python")
            assert '"agent.coder" (connected; skills "python")' in found
            await agents.all_are_woken("first")
            with serve_again(tmp_path, first):
                await agents.all_are_woken("second")
                found = await agents.coder.call_ok("relay_find_agents", skill="planning")
                assert '"agent.planner"' in found
                await notices_are_lost(agents)


async def notices_are_lost(agents: Agents) -> None:
    """Messages whose notices no one saw are found at the next turn."""
    agents.host.events.clear()
    agents.receiver.answers = [None]
    sent = await agents.planner.send("agent.coder", "unnoticed")
    await agents.planner.send("agent.hooked", "unnoticed")
    await eventually(lambda: agents.host.events, "an event that its host drops")
    assert await agents.coder.read(wait_seconds=0) == [(sent, "unnoticed")]
    assert "unnoticed" in await agents.run("hook", "agent.hooked")
