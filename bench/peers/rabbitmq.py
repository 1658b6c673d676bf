"""RabbitMQ with a durable quorum queue, publisher confirms and persistent messages, over loopback.

A quorum queue syncs its log before it confirms; on one node it has one member. Publish sends
`in_flight` messages and then awaits their confirmations. Consume is a consumer with a prefetch of
`in_flight`; each batch is acknowledged with one `basic.ack` for all of it. AMQP does not confirm
acknowledgements: a run ends when the server has answered one more command on the same channel.

The client is aio-pika, the usual one for asyncio. The server runs with its default settings as the
user of the benchmark, with a name service (epmd) and a port of its own.
"""

import asyncio
import importlib.util
import shutil
import socket
import time
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers import ServerPeer, ServerProcess, batch_sizes, require
from bench.peers.ports import free_ports
from bench.workload import make_encoded_payloads

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's; the one on PATH changes to another user."""
QUEUE = "bench"
RUN_SECONDS_MAX = 300.0


class RabbitQuorum(ServerPeer):
    """One RabbitMQ node with one quorum queue."""

    name = "RabbitMQ quorum queue"
    label = "rabbitmq"

    def __init__(self) -> None:
        self._payloads = cycle(make_encoded_payloads())
        self._names: ServerProcess | None = None
        self._port = 0
        self._connection: AbstractConnection | None = None

    def available(self) -> str | None:
        """Return what is missing: the server, its name service, or aio-pika."""
        if find_program() is None or shutil.which("epmd") is None:
            return "not installed, apt-get install rabbitmq-server"
        if importlib.util.find_spec("aio_pika") is None:
            return "no client, pip install aio-pika"
        return None

    async def start(self, data_dir: Path) -> None:
        """Start the name service and the server, and declare the queue."""
        program = find_program()
        require(program is not None, "rabbitmq-server was not found")
        names_port, self._port, between_nodes = free_ports(3)
        try:
            self._names = ServerProcess("epmd", data_dir)
            self._names.start(["epmd", "-port", str(names_port), "-address", "127.0.0.1"])
            self._server = server = ServerProcess("rabbitmq", data_dir)
            config = server.directory / "rabbitmq.conf"
            config.write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\n")
            environment = server_environment(server.directory, names_port, between_nodes)
            server.start([str(program)], environment)
            await server.wait_until(lambda: accepts_connections(self._port))
            await self._connect()
        except BaseException:
            await self.stop()
            raise

    async def publish(self, count: int, in_flight: int) -> float:
        """Publish; the server must confirm each message."""
        payloads = list(islice(self._payloads, count))
        position = 0
        async with asyncio.timeout(RUN_SECONDS_MAX):
            begin = time.perf_counter()
            for size in batch_sizes(count, in_flight):
                await self.publish_batch(payloads[position : position + size])
                position += size
            return time.perf_counter() - begin

    async def publish_batch(self, payloads: list[bytes]) -> None:
        """Send all, then wait for the confirmation of each."""
        from aio_pika import DeliveryMode, Message
        from pamqp.commands import Basic

        publish = self._channel.default_exchange.publish
        messages = [Message(payload, delivery_mode=DeliveryMode.PERSISTENT) for payload in payloads]
        answers = await asyncio.gather(*(publish(message, QUEUE) for message in messages))
        confirmed = sum(isinstance(answer, Basic.Ack) for answer in answers)
        require(confirmed == len(payloads), f"rabbitmq confirmed {confirmed} of {len(payloads)}")

    async def consume(self, count: int, in_flight: int) -> float:
        """Consume; each batch is acknowledged before the next."""
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        async with asyncio.timeout(RUN_SECONDS_MAX):
            begin = time.perf_counter()
            await self._reading.set_qos(prefetch_count=in_flight)
            tag = await self._queue.consume(arrived.put)
            for size in batch_sizes(count, in_flight):
                messages = [await arrived.get() for _ in range(size)]
                await messages[-1].ack(multiple=True)
            await self._queue.cancel(tag)
            return time.perf_counter() - begin

    async def stop(self) -> None:
        """Close the connection, kill both processes, remove their files."""
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            for process in (self._server, self._names):
                if process is not None:
                    process.stop()
            self._server = self._names = None

    async def _connect(self) -> None:
        import aio_pika

        self._connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self._port}/")
        self._channel: AbstractChannel = await self._connection.channel(publisher_confirms=True)
        self._reading: AbstractChannel = await self._connection.channel()
        self._queue: AbstractQueue = await self._reading.declare_queue(
            QUEUE, durable=True, arguments={"x-queue-type": "quorum"}
        )


class RabbitRoundTrips(RabbitQuorum):
    """Publishes and consumes at the same time, on a channel each."""

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Publish and consume; each message must be confirmed, and arrive."""
        async with asyncio.timeout(RUN_SECONDS_MAX):
            arrived: asyncio.Queue[Any] = asyncio.Queue()
            await self._reading.set_qos(prefetch_count=in_flight)
            tag = await self._queue.consume(arrived.put)
            begin = time.perf_counter()
            for size in batch_sizes(count, in_flight):
                await self.publish_batch(list(islice(self._payloads, size)))
                messages = [await arrived.get() for _ in range(size)]
                await messages[-1].ack(multiple=True)
            await self._reading.get_queue(QUEUE)  # answered after the acknowledgements
            seconds = time.perf_counter() - begin
            await self._queue.cancel(tag)
        return seconds


def find_program() -> str | None:
    """Return the server's start script that needs no other user."""
    return shutil.which(PROGRAM) or (
        shutil.which("rabbitmq-server") if not Path("/etc/debian_version").exists() else None
    )


def accepts_connections(port: int) -> bool:
    """Return whether something listens on the port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def server_environment(directory: Path, names_port: int, between_nodes: int) -> dict[str, str]:
    """Return the variables that keep the server to one directory and to loopback.

    With `RABBITMQ_ALLOW_INPUT` the script becomes the Erlang process, which can then be killed.
    """
    return {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_DIST_PORT": str(between_nodes),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_NODENAME": "bench@localhost",
    }
