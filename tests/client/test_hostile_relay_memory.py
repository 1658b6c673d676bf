"""The memory of an agent whose relay sends 300 MB in every way it can, measured from outside."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.client.fake_relay import NONCE, FakeConnection, run_fake_relay
from tests.client.session_harness import message
from tests.eventually import eventually, unchanged
from waypost.client import Identity
from waypost.wire import frames

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]

GROWTH_MAX_MIB = 150
"""Far above the bounds that the agent below has been given, and far below what it is sent."""

MEGABYTE = 1_000_000
TOTAL_BYTES = 300 * MEGABYTE

AGENT = """
import asyncio, sys
from waypost.client import ClientError, ClientOptions, Identity, connect

def peak_mib():  # not ru_maxrss, which begins with that of the parent process
    with open("/proc/self/status") as status:
        [peak] = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    return int(peak) // 1024

async def main(url, key, action, receive):
    options = ClientOptions(
        unread_max_bytes=8_000_000, connect_timeout_s=60.0, send_timeout_s=60.0, receive=receive
    )
    loop = asyncio.get_running_loop()
    before = peak_mib()

    async def act():
        async with connect(url, Identity.load(key), options=options) as agent:
            if action == "send":
                await agent.send("agent.bob", 1)
            while action == "ack":
                await (await agent.receive()).ack()
            await asyncio.sleep(60)

    acting = asyncio.create_task(act())
    await loop.run_in_executor(None, sys.stdin.readline)
    print(peak_mib() - before, flush=True)
    acting.cancel()

asyncio.run(main(*sys.argv[1:]))
"""

Attack = Callable[["Hostile", FakeConnection], Awaitable[None]]


class Hostile:
    """A relay that attacks every connection until it has sent enough; `sent` is in bytes."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.sent = 0
        self.connections = 0

    async def __call__(self, connection: FakeConnection) -> None:
        self.connections += 1
        with suppress(ConnectionClosed, ConnectionError):
            await self._attack(self, connection)
        await connection.stay_open()

    async def flood(
        self, connection: FakeConnection, make: Callable[[int], frames.FrameOperation]
    ) -> None:
        while self.sent < TOTAL_BYTES:
            await connection.send_frame(make(self.sent))
            self.sent += MEGABYTE


async def unread(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.accept()
    await hostile.flood(connection, lambda number: message(f"m-{number}", "x" * MEGABYTE))


async def unread_lists(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.accept()
    lists: list[list[int]] = [[] for _ in range(MEGABYTE // 3)]
    await hostile.flood(connection, lambda number: message(f"m-{number}", lists))


async def before_the_welcome(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.send_frame(frames.Challenge(nonce=NONCE))
    await hostile.flood(connection, lambda number: message(f"m-{number}", "x" * MEGABYTE))


async def long_ids(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.accept()
    await hostile.flood(connection, lambda number: message(f"{number}-" + "x" * MEGABYTE))


async def unasked_answers(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.accept()
    connection.websocket.transport.pause_reading()
    await hostile.flood(
        connection,
        lambda number: frames.FetchedMessages(
            ref=1, messages=[message(f"{number}-{one}-" + "x" * 10_000) for one in range(100)]
        ),
    )


async def unread_acks(hostile: Hostile, connection: FakeConnection) -> None:
    await connection.accept()
    connection.websocket.transport.pause_reading()
    await hostile.flood(connection, lambda number: message(f"{number}-" + "x" * MEGABYTE))


@pytest.mark.parametrize(
    ("attack", "action", "receive"),
    [
        (unread, "send", "push"),
        (unread_lists, "send", "push"),
        (before_the_welcome, "wait", "push"),
        (long_ids, "ack", "push"),
        (unasked_answers, "wait", "pull"),
        (unread_acks, "ack", "push"),
    ],
)
async def test_the_memory_of_an_agent_is_bounded(
    attack: Attack, action: str, receive: str, tmp_path: Path
) -> None:
    key = tmp_path / "agent.key"
    Identity.new("agent.ann").save(key)
    hostile = Hostile(attack)
    async with run_fake_relay(hostile, close_timeout=0.1) as url:
        agent = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            AGENT,
            url,
            str(key),
            action,
            receive,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await eventually(lambda: hostile.sent, "the attack")
            await unchanged(lambda: (hostile.sent, hostile.connections), for_s=0.5)
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.write(b"\n")
            growth_mib = int(await asyncio.wait_for(agent.stdout.readline(), 60))
        finally:
            agent.kill()
            await agent.wait()
    assert growth_mib < GROWTH_MAX_MIB
