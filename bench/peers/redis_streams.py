"""Redis Streams with `appendfsync always`, over a unix socket.

Publish is `XADD`, `in_flight` of them per round trip. Redis reads at most 16 KiB from a client per
turn of its event loop and syncs once per turn, so a plain pipeline of 512-byte messages gets some
30 messages per fsync however deep it is. Inside `MULTI`/`EXEC` the whole batch runs in one turn
and is one fsync. Both are measured: plain for independent publishes, `atomic` for
a batch that belongs together. A pipeline is one call that waits for all its responses; with
`RedisAwaited` each task awaits its own response.

Consume is `XREADGROUP COUNT in_flight`, then one `XACK` for the whole batch: two round trips and
two fsyncs, because Redis logs both before it responds. Lease and acknowledgement are as durable as
the message. `XDEL` is not used: the stream keeps acknowledged messages, as a journal does.

The blocking redis-py client is used because it is faster than the asyncio one. Rough figures for
publishes per second at 100 and 1000 in flight, on 2 shared cores and ext4: plain 30,000 and 31,000
against 20,000 and 25,000; atomic at 1000 in flight 48,000 against 35,000. It blocks the event
loop, on which nothing else runs meanwhile. Ten asyncio connections that share 1000 plain
publishes reach what one `MULTI` does.
"""

import asyncio
import importlib.util
import shutil
import time
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers import PeerError, ServerPeer, ServerProcess, batch_sizes, require
from bench.workload import make_encoded_payloads

if TYPE_CHECKING:
    from redis import Redis

SOCKET_NAME = "redis.sock"
SOCKET_PATH_BYTES_MAX = 103  # what macOS allows; Linux allows 107
STREAM = "bench"
GROUP = "readers"
CONSUMER = "reader-1"
FIELD = "payload"
CONNECTIONS_MAX = 100


class RedisStreams(ServerPeer):
    """Redis with an append-only file that is synced before each response, and no snapshots."""

    label = "redis"

    def __init__(self, *, atomic: bool = False) -> None:
        """With `atomic`, publish each batch in `MULTI`/`EXEC`: one fsync, all or nothing."""
        self.name = "Redis Streams, MULTI" if atomic else "Redis Streams"
        self._atomic = atomic
        self._payloads = cycle(make_encoded_payloads())
        self._client: Redis | None = None

    def available(self) -> str | None:
        """Return what is missing: redis-server on PATH, or the packages redis and hiredis."""
        if shutil.which("redis-server") is None:
            return "not installed, apt-get install redis-server"
        for package in ("redis", "hiredis"):
            if importlib.util.find_spec(package) is None:
                return f"no client, pip install {package}"
        return None

    async def start(self, data_dir: Path) -> None:
        """Start redis-server without a port; its socket and log are under `data_dir`."""
        from redis import Redis

        self._server = server = ServerProcess("redis", data_dir)
        try:
            socket = server.directory / SOCKET_NAME
            require(
                len(bytes(socket)) <= SOCKET_PATH_BYTES_MAX,
                f"{socket} is too long for a socket: use a shorter data directory",
            )
            server.start(server_command(server.directory))
            self._client = client = Redis(unix_socket_path=str(socket), protocol=3)
            await server.wait_until(lambda: socket.exists() and is_ready(client))
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except BaseException:
            await self.stop()
            raise

    async def publish(self, count: int, in_flight: int) -> float:
        """Publish; every `XADD` must return a different id."""
        client = self._connected()
        ids: set[bytes] = set()
        payloads = list(islice(self._payloads, count))
        started = time.perf_counter()
        position = 0
        for size in batch_sizes(count, in_flight):
            # MULTI around a single command would only add two commands to it.
            pipeline = client.pipeline(transaction=self._atomic and size > 1)
            for payload in payloads[position : position + size]:
                pipeline.xadd(STREAM, {FIELD: payload})
            ids.update(pipeline.execute())
            position += size
        seconds = time.perf_counter() - started
        require(len(ids) == count, f"redis confirmed {len(ids)} of {count} messages")
        return seconds

    async def consume(self, count: int, in_flight: int) -> float:
        """Consume; every batch must be complete, and `XACK` must count each of its messages."""
        client = self._connected()
        started = time.perf_counter()
        for size in batch_sizes(count, in_flight):
            ids = read_batch(client, size)
            require(len(ids) == size, f"redis delivered {len(ids)} of {size} messages")
            acknowledged = client.xack(STREAM, GROUP, *ids)
            require(acknowledged == size, f"redis acknowledged {acknowledged} of {size} messages")
        return time.perf_counter() - started

    async def stop(self) -> None:
        """Close the connection, kill the server, remove its files."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _connected(self) -> "Redis":
        if self._client is None:
            raise PeerError("redis was not started")
        return self._client


class RedisAwaited(RedisStreams):
    """The same server with one `XADD` per task, each awaiting its response, on a shared pool."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "Redis Streams, awaited"

    async def publish(self, count: int, in_flight: int) -> float:
        """Publish from `in_flight` tasks; a connection serves one of them at a time."""
        from redis.asyncio import BlockingConnectionPool, Redis, UnixDomainSocketConnection

        path = str(self.directory / SOCKET_NAME)
        pool = BlockingConnectionPool(
            connection_class=UnixDomainSocketConnection,
            max_connections=min(in_flight, CONNECTIONS_MAX),
            path=path,
            protocol=3,
        )
        client = Redis(connection_pool=pool)
        work = iter(list(islice(self._payloads, count)))

        async def worker() -> int:
            return len({await client.xadd(STREAM, {FIELD: payload}) for payload in work})

        started = time.perf_counter()
        confirmed = sum(await asyncio.gather(*(worker() for _ in range(in_flight))))
        seconds = time.perf_counter() - started
        await client.aclose()
        await pool.aclose()
        require(confirmed == count, f"redis confirmed {confirmed} of {count} messages")
        return seconds


def server_command(directory: Path) -> list[str]:
    """Return the command: sync before each response, no snapshot or rewrite meanwhile."""
    settings = {
        "port": "0",
        "unixsocket": str(directory / SOCKET_NAME),
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": "always",
        "auto-aof-rewrite-percentage": "0",
        "save": "",
        "daemonize": "no",
    }
    return ["redis-server", *(word for key in settings for word in (f"--{key}", settings[key]))]


def is_ready(client: "Redis") -> bool:
    """Return whether the server accepts commands yet."""
    from redis.exceptions import RedisError

    try:
        return bool(client.ping())
    except RedisError:
        return False


def read_batch(client: "Redis", size: int) -> list[bytes]:
    """Return the ids of the next messages of the group, at most `size`; parses payloads, too."""
    # redis-py types the response for all protocol versions; this is version 3.
    response: Any = client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=size)
    if not response:
        return []
    [entries] = response[STREAM.encode()]
    return [entry_id for entry_id, _fields in entries]
