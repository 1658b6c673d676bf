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
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PeerError, ServerProcess, batch_sizes, require
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
            "inboxMaxBytes": UNREACHED,
        },
        "names": {"newPerMinute": UNREACHED, "newPerAddressMinute": UNREACHED},
    }


class WaypostServer:
    """One `waypost serve` process on an empty directory, with `config` as its settings."""

    def __init__(self, config: dict[str, object]) -> None:
        self._config = config
        self._process: ServerProcess | None = None
        self.url = ""

    def available(self) -> str | None:
        """Return what is missing: the server extra."""
        if importlib.util.find_spec("uvicorn") is None:
            return "The extra waypost[server] is not installed."
        return None

    async def start(self, data_dir: Path) -> None:
        """Start the server on a free port."""
        self._process = process = ServerProcess("waypost", data_dir)
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
        if self._process is None:
            raise PeerError("waypost was not started")
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        require(found is not None, "no VmRSS: memory is read from /proc, on Linux")
        return int(found[1]) * 1024 if found else 0

    def agent(self, subject: str) -> "AbstractAsyncContextManager[Agent]":
        """Connect an agent with a key of its own."""
        from waypost.client import Identity, connect

        return connect(self.url, Identity.new(subject))

    def stop(self) -> None:
        """Kill the server and remove its files."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _read_url(self) -> str | None:
        assert self._process is not None
        log = self._process.directory / "server.log"
        found = re.search(r"https?://127\.0\.0\.1:\d+", log.read_text()) if log.exists() else None
        return found[0] if found else None


class ServedRelay:
    """A sender and a recipient, both connected to one server."""

    def __init__(self, storage: str) -> None:
        self.name = f"Waypost served, {storage}"
        self._server = WaypostServer(open_config(storage))
        self._payloads = cycle([make_payload(index) for index in range(PAYLOAD_VARIANTS)])
        self._stack = contextlib.AsyncExitStack()
        self._sender: Agent | None = None
        self._reading: asyncio.Task[None] | None = None

    def available(self) -> str | None:
        """Return what is missing: the server extra."""
        return self._server.available()

    async def start(self, data_dir: Path) -> None:
        """Start server and sender, and a recipient that acknowledges every message."""
        try:
            await self._server.start(data_dir)
            self._sender = await self._stack.enter_async_context(self._server.agent("agent.a"))
            recipient = await self._stack.enter_async_context(self._server.agent("agent.b"))
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
                results = await sender.send_many(
                    {"subject": "agent.b", "payload": payload}
                    for payload in islice(self._payloads, size)
                )
                require(all(one.delivered_to for one in results), "a message was not delivered")
                for result in results:
                    await sender.delivered(result.message_id)
        return seconds[0]

    async def stop(self) -> None:
        """Disconnect both, kill the server, remove its files."""
        if self._reading is not None:
            self._reading.cancel()
        await self._stack.aclose()
        self._server.stop()

    async def _read(self, recipient: "Agent") -> None:
        while True:
            for message in await recipient.receive_many(1000):
                await message.ack()
