"""A served relay that is stopped under load loses no confirmed message."""

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serve_process import ServeProcess, serving
from tests.eventually import eventually
from waypost.client import Agent, ClientError, ClientOptions, Identity, connect

pytestmark = pytest.mark.process

UNLIMITED = {
    "reliability": {"rateLimit": {"enabled": False}, "backpressure": {"enabled": False}},
    "qos": {"enabled": False},
}
ENOUGH = 200
SENDERS = 4


@pytest.fixture
def data(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.mkdir(mode=0o700)
    (found / "config.json").write_text(json.dumps(UNLIMITED))
    return found


class Confirmed:
    """Ids of confirmed messages; stops the relay after `ENOUGH` of them."""

    def __init__(self, relay: ServeProcess) -> None:
        self.ids: set[str] = set()
        self._process = relay.process

    def add(self, message_id: str) -> None:
        self.ids.add(message_id)
        if len(self.ids) == ENOUGH:
            self._process.send_signal(signal.SIGTERM)


async def post(client: httpx.AsyncClient, url: str, confirmed: Confirmed) -> None:
    """Send one message after the other until the relay stops responding."""
    while True:
        try:
            answer = await client.post(
                f"{url}/v1/messages", json={"subject": "agent.a", "payload": "x" * 200}
            )
        except httpx.HTTPError:
            return
        if answer.status_code != 200:
            return
        confirmed.add(answer.json()["message_id"])


async def send(agent: Agent, confirmed: Confirmed) -> None:
    """Send many messages at once over a connection, until it is lost."""
    try:
        while True:
            results = await agent.send_many(
                [{"subject": "agent.a", "payload": number} for number in range(10)]
            )
            for result in results:
                confirmed.add(result.message_id)
    except ClientError:
        return


def stored(data: Path) -> set[str]:
    waypost = CommandLine(data)
    assert waypost.json("verify")["ok"]
    found: set[str] = set()
    while messages := waypost.json("inbox", "agent.a", "--ack", "--limit", "1000")["messages"]:
        found |= {one["id"] for one in messages}
    return found


def test_messages_confirmed_over_http_survive_a_stop(tmp_path: Path, data: Path) -> None:
    with serving(tmp_path, data=data) as relay:
        confirmed = Confirmed(relay)

        async def load() -> None:
            async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
                await asyncio.gather(*(post(client, relay.url, confirmed) for _ in range(SENDERS)))

        asyncio.run(load())
        assert relay.exit_code() == 0
    assert len(confirmed.ids) >= ENOUGH
    assert confirmed.ids <= stored(data)


def test_messages_confirmed_to_connected_agents_survive_a_stop(tmp_path: Path, data: Path) -> None:
    with serving(tmp_path, data=data) as relay:
        confirmed = Confirmed(relay)

        async def load() -> None:
            options = ClientOptions(send_timeout_s=600.0, close_timeout_s=0.1)
            async with connect(relay.url, Identity.new("agent.b"), options=options) as agent:
                sending = [asyncio.create_task(send(agent, confirmed)) for _ in range(SENDERS)]
                await eventually(lambda: relay.process.poll() is not None, "the end of the relay")
                for one in sending:
                    one.cancel()
                await asyncio.wait(sending)

        asyncio.run(load())
        assert relay.exit_code() == 0
    assert len(confirmed.ids) >= ENOUGH
    assert confirmed.ids <= stored(data)
