"""Waypost served by `waypost serve`, with two of its own clients over loopback.

A round trip is `send_many`, the recipient's `receive_many` and an ack of each, and the delivery
confirmation of each at the sender. All checks are on, with limits out of reach. The message is on
disk before `send_many` returns, the acknowledgement before the sender gets the confirmation.
"""

import asyncio
import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PeerError, ServerPeer, ServerProcess, batch_sizes, require
from bench.round_trips import stopwatch
from bench.workload import PAYLOAD_VARIANTS, make_payload

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from waypost.client import Agent

UNREACHED = 10**9
UNLIMITED = {"maxEnvelopes": UNREACHED, "maxBytes": UNREACHED}


def open_config(storage: str) -> dict[str, object]:
    """Return a `config.json` with every check on and every limit out of reach."""
    return {
        "storage": storage,
        "reliability": {
            "rateLimit": {"maxPerWindow": UNREACHED},
            "backpressure": {"maxMailboxSize": UNREACHED},
        },
        "qos": {
            "tier1": UNLIMITED,
            "tier2": UNLIMITED,
            "tier3": UNLIMITED,
            "strangers": UNLIMITED,
            "inboxMaxBytes": UNREACHED,
        },
        "names": {"newPerMinute": UNREACHED, "newPerAddressMinute": UNREACHED},
    }


class WaypostServer(ServerPeer):
    """One `waypost serve` process on an empty directory, with `config` as its settings."""

    label = "waypost"

    def __init__(self, config: dict[str, object]) -> None:
        self._config = config
        self.url = ""

    def available(self) -> str | None:
        """Return what is missing: the server extra."""
        if importlib.util.find_spec("uvicorn") is None:
            return "not installed, pip install 'waypost[server]'"
        return None

    async def start(self, data_dir: Path) -> None:
        """Start the server on a free port."""
        self._server = process = ServerProcess("waypost", data_dir)
        data = process.directory / "data"
        data.mkdir(mode=0o700)
        (data / "config.json").write_text(json.dumps(self._config))
        command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data-dir", str(data)]
        process.start(command)
        await process.wait_until(lambda: self._read_url() is not None)
        self.url = str(self._read_url())

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        return self.running().memory_bytes

    def agent(self, subject: str) -> "AbstractAsyncContextManager[Agent]":
        """Connect an agent with a key of its own."""
        from waypost.client import Identity, connect

        return connect(self.url, Identity.new(subject))

    def stop(self) -> None:
        """Kill the server and remove its files."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _read_url(self) -> str | None:
        log = self.directory / "server.log"
        found = re.search(r"https?://127\.0\.0\.1:\d+", log.read_text()) if log.exists() else None
        return found[0] if found else None


def ignore(arrived: int) -> None:
    """Do nothing with an arrival."""


class ServedRelay:
    """A sender and a recipient, both connected to one server."""

    def __init__(self, storage: str) -> None:
        self.name = f"Waypost served, {storage}"
        self.server = WaypostServer(open_config(storage))
        self._payloads = cycle([make_payload(index) for index in range(PAYLOAD_VARIANTS)])
        self._stack = contextlib.AsyncExitStack()
        self._sender: Agent | None = None
        self._reading: asyncio.Task[None] | None = None
        self._on_arrival: Callable[[int], None] = ignore

    @property
    def directory(self) -> Path:
        """The directory of the server."""
        return self.server.directory

    def available(self) -> str | None:
        """Return what is missing: the server extra."""
        return self.server.available()

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of the server so far."""
        return self.server.server_cpu_seconds()

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by kind of process."""
        return {"nodes": self.server_cpu_seconds()}

    async def start(self, data_dir: Path) -> None:
        """Start server and sender, and a recipient that acknowledges every message."""
        try:
            await self.server.start(data_dir)
            self._sender = await self._stack.enter_async_context(self.server.agent("agent.a"))
            recipient = await self._stack.enter_async_context(self.server.agent("agent.b"))
            self._reading = asyncio.create_task(self._read(recipient))
        except BaseException:
            await self.stop()
            raise

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Send; the recipient must acknowledge each message."""
        sender = self._sender
        if sender is None:
            raise PeerError("waypost was not started")
        with stopwatch() as seconds:
            for size in batch_sizes(count, in_flight):
                for message_id in await self._send(sender, size):
                    await sender.delivered(message_id)
        return seconds[0]

    async def publishes(self, count: int, in_flight: int) -> float:
        """Send to an agent that is away: each message is stored, and stays."""
        if self._sender is None:
            raise PeerError("waypost was not started")
        with stopwatch() as seconds:
            for size in batch_sizes(count, in_flight):
                await self._send(self._sender, size, "agent.away")
        return seconds[0]

    async def send(self, count: int) -> None:
        """Send `count` messages; they are on disk when this returns."""
        if self._sender is None:
            raise PeerError("waypost was not started")
        await self._send(self._sender, count)

    @contextlib.asynccontextmanager
    async def reading(self, on_arrival: Callable[[int], None]) -> AsyncIterator[None]:
        """Report arrivals; the recipient reads and acknowledges anyway."""
        self._on_arrival = on_arrival
        try:
            yield
        finally:
            self._on_arrival = ignore

    async def stop(self) -> None:
        """Disconnect both, kill the server, remove its files."""
        if self._reading is not None:
            self._reading.cancel()
        await self._stack.aclose()
        self.server.stop()

    async def _send(self, sender: "Agent", count: int, subject: str = "agent.b") -> list[str]:
        results = await sender.send_many(
            {"subject": subject, "payload": payload} for payload in islice(self._payloads, count)
        )
        for one in results:
            require(bool(one.delivered_to), f"a message was not delivered: {one.rejected}")
        return [one.message_id for one in results]

    async def _read(self, recipient: "Agent") -> None:
        while True:
            messages = await recipient.receive_many(1000)
            self._on_arrival(len(messages))
            for message in messages:
                await message.ack()
