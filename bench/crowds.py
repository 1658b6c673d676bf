"""Hostile crowds for `bench.flood`: each runs in a process of its own until its stdin is closed.

`python -m bench.crowds NAME URL` prints the outcomes of its attempts as JSON. It runs at the lowest
priority: an attacker brings its own computing time, as far as that is possible on one machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from waypost.client import Agent

ATTEMPTS = 10_000
VICTIM = "agent.peer-0"
FLOODER = "agent.flooder"
IDLE_SOCKETS = 5_000
FRAME_SOCKETS = 16
FRAMES_AT_ONCE = 2_000
"""Every 10 ms: 1.2 MB a second on each connection."""
PATTERN_KEYS = 20
PATTERN_CALLERS = 4
OTHERS = 90
PATTERNS_IN_REQUEST = 5_000
REST_S = 0.01

BEGIN = b"\x01\x80" + bytes(4)
TINY = {
    "ping": b"\x89\x80" + bytes(4),
    "empty fragment": b"\x00\x80" + bytes(4),
    "pong": b"\x8a\x80" + bytes(4),
    "empty ack": b"\x81\x95" + bytes(4) + b'{"op":"ack","ids":[]}',
}

Outcomes = Counter[str]


async def sender(url: str, outcomes: Outcomes) -> None:
    """Send 10,000 messages to one peer, as an agent that it does not know."""
    from waypost.client import Identity, connect

    async with connect(url, Identity.new(FLOODER)) as agent:
        for begin in range(0, ATTEMPTS, 100):
            wanted = [{"subject": VICTIM, "payload": begin + number} for number in range(100)]
            await _send(agent, wanted, outcomes)
        await asyncio.Event().wait()


async def idle(url: str, outcomes: Outcomes) -> None:
    """Keep 5,000 sockets open that send nothing, or half a request."""
    address = urlsplit(url)

    async def one(number: int) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                outcomes["opened"] += 1
                if number % 2:
                    writer.write(b"GET / HTTP/1.1\r\nX: ")
                await reader.read()
                outcomes["closed"] += 1
                writer.close()
            except OSError:
                await asyncio.sleep(REST_S)

    await asyncio.gather(*(one(number) for number in range(IDLE_SOCKETS)))


async def frames(url: str, outcomes: Outcomes) -> None:
    """Send tiny WebSocket frames on 16 connections, half of them authenticated."""
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import WebSocketException

    from waypost.client import Identity
    from waypost.wire.codecs import CODECS
    from waypost.wire.frames import JSON_PROTOCOL, Challenge

    codec = CODECS[JSON_PROTOCOL]
    address = urlsplit(url).netloc

    async def authenticate(socket: ClientConnection, identity: Identity) -> None:
        [challenge] = codec.from_relay(await socket.recv())
        assert isinstance(challenge, Challenge)
        await socket.send(codec.encode(identity.prove(challenge.nonce, address)).decode())
        await socket.recv()

    async def one(number: int) -> None:
        kind = list(TINY)[number % len(TINY)]
        identity = Identity.new(f"agent.tiny-{number}")
        is_agent = number >= FRAME_SOCKETS // 2
        while True:
            try:
                async with connect(
                    f"ws://{address}/v1/connect",
                    subprotocols=[JSON_PROTOCOL],
                    ping_interval=None,
                    proxy=None,
                ) as socket:
                    if is_agent:
                        await authenticate(socket, identity)
                    outcomes["opened"] += 1
                    socket.transport.write(BEGIN * (kind == "empty fragment"))
                    while not socket.transport.is_closing():
                        if socket.transport.get_write_buffer_size() < 1 << 20:
                            socket.transport.write(TINY[kind] * FRAMES_AT_ONCE)
                            outcomes[kind] += FRAMES_AT_ONCE
                        await asyncio.sleep(REST_S)
            except (OSError, WebSocketException):
                await asyncio.sleep(REST_S)
            outcomes["closed"] += 1

    await asyncio.gather(*(one(number) for number in range(FRAME_SOCKETS)))


async def patterns(url: str, outcomes: Outcomes) -> None:
    """Publish to all endpoints at once, in batches: without a key, and with twenty.

    There are more endpoints than one publish may reach, as in a relay that has been in use.
    """
    import httpx

    from waypost.client import ClientError, Identity, connect

    everyone = [{"subject": ">", "payload": 1}] * PATTERNS_IN_REQUEST
    content = json.dumps({"messages": everyone}, separators=(",", ":"))

    async def anonymous(client: httpx.AsyncClient) -> None:
        while True:
            try:
                answer = await client.post(
                    f"{url}/v1/messages",
                    content=content,
                    headers={"Content-Type": "application/json"},
                )
                outcomes[f"requests answered with {answer.status_code}"] += 1
            except httpx.HTTPError:
                outcomes["requests without an answer"] += 1
            await asyncio.sleep(REST_S)

    async def keyed(agent: "Agent") -> None:
        while True:
            with contextlib.suppress(ClientError):
                await _send(agent, everyone[:1000], outcomes)

    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=60, trust_env=False))
        others = [{"subject": f"agent.other-{one}", "payload": 1} for one in range(OTHERS)]
        await client.post(f"{url}/v1/messages", json={"messages": others})
        agents = [
            await stack.enter_async_context(connect(url, Identity.new(f"agent.pattern-{number}")))
            for number in range(PATTERN_KEYS)
        ]
        callers = [anonymous(client) for _ in range(PATTERN_CALLERS)]
        await asyncio.gather(*callers, *map(keyed, agents))


CROWDS: dict[str, Callable[[str, Outcomes], Awaitable[None]]] = {
    "sender": sender,
    "idle": idle,
    "frames": frames,
    "patterns": patterns,
}


async def _send(agent: "Agent", wanted: list[dict[str, object]], outcomes: Outcomes) -> None:
    for result in await agent.send_many(wanted):
        outcomes["accepted" if result.delivered_to else str(result.rejected[0].reason)] += 1


async def _run(name: str, url: str) -> Outcomes:
    outcomes: Outcomes = Counter()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    attack = asyncio.ensure_future(CROWDS[name](url, outcomes))
    await asyncio.wait((attack, asyncio.ensure_future(ended.wait())), return_when="FIRST_COMPLETED")
    attack.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attack
    return outcomes


def main() -> None:
    """Attack until stdin is closed, then print the outcomes."""
    parser = argparse.ArgumentParser(prog="python -m bench.crowds", description=__doc__)
    parser.add_argument("name", choices=CROWDS)
    parser.add_argument("url")
    options = parser.parse_args()
    os.nice(19)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(asyncio.run(_run(options.name, options.url))))


if __name__ == "__main__":
    main()
