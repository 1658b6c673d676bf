"""Queues on SQLite that run in the benchmark's own process: persist-queue and litequeue.

Both use a write-ahead log with `synchronous = FULL`: a commit is on disk when the call returns.
litequeue chooses NORMAL, which may lose the last commits, so it is set here.

persist-queue is its `SQLiteAckQueue`: `put`, `get` and `ack` commit one message each; it has no
call for more, so the number in flight changes nothing. litequeue puts and acknowledges a batch in
one transaction; `pop` is a transaction of its own. Acknowledged messages are deleted after each
run, outside the measured time, as both recommend: they would slow down the next read.
"""

import importlib.util
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from itertools import cycle, islice
from pathlib import Path

from bench.peers import PeerError, batch_sizes, require
from bench.workload import make_encoded_payloads

SYNC_FULL = "PRAGMA synchronous = FULL"


class SqliteQueue(ABC):
    """A queue in one SQLite file; subclasses put, take, and forget what was acknowledged."""

    name = ""
    package = ""
    module = ""

    def __init__(self) -> None:
        self._payloads = cycle(make_encoded_payloads())
        self._directory: Path | None = None

    @property
    def directory(self) -> Path:
        """The directory of the SQLite file."""
        if self._directory is None:
            raise PeerError(f"{self.package} was not started")
        return self._directory

    def available(self) -> str | None:
        """Return what is missing: the package."""
        if importlib.util.find_spec(self.module) is None:
            return f"not installed, pip install {self.package}"
        return None

    async def start(self, data_dir: Path) -> None:
        """Open an empty queue below `data_dir`."""
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.package}-", dir=data_dir))
        self.open(self._directory)

    def server_cpu_seconds(self) -> float:
        """Return 0: there is no server."""
        return 0.0

    async def publish(self, count: int, in_flight: int) -> float:
        """Put `count` messages, `in_flight` in one transaction if the queue can do that."""
        payloads = islice(self._payloads, count)
        batches = [list(islice(payloads, size)) for size in batch_sizes(count, in_flight)]
        begin = time.perf_counter()
        stored = sum(self.put(batch) for batch in batches)
        seconds = time.perf_counter() - begin
        require(stored == count, f"{self.package} stored {stored} of {count} messages")
        return seconds

    async def consume(self, count: int, in_flight: int) -> float:
        """Take and acknowledge `count` messages, `in_flight` at a time."""
        begin = time.perf_counter()
        taken = sum(self.take(size) for size in batch_sizes(count, in_flight))
        seconds = time.perf_counter() - begin
        require(taken == count, f"{self.package} returned {taken} of {count} messages")
        self.forget()
        return seconds

    async def stop(self) -> None:
        """Close the queue and remove its file."""
        if self._directory is not None:
            self.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @abstractmethod
    def open(self, directory: Path) -> None:
        """Open the queue in an empty directory."""

    @abstractmethod
    def put(self, payloads: list[bytes]) -> int:
        """Store the payloads; return the number of different ids."""

    @abstractmethod
    def take(self, size: int) -> int:
        """Read and acknowledge up to `size` messages; return their number."""

    @abstractmethod
    def forget(self) -> None:
        """Delete acknowledged messages."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class PersistQueue(SqliteQueue):
    """`SQLiteAckQueue` of persist-queue."""

    name = "persist-queue"
    package = "persist-queue"
    module = "persistqueue"

    def open(self, directory: Path) -> None:
        """Open the queue; the package has no setting for the sync."""
        from persistqueue import SQLiteAckQueue

        self._queue: SQLiteAckQueue = SQLiteAckQueue(str(directory))
        self._queue._putter.execute(SYNC_FULL)

    def put(self, payloads: list[bytes]) -> int:
        """Store the payloads, one commit each."""
        return len({self._queue.put(payload) for payload in payloads})

    def take(self, size: int) -> int:
        """Read `size` messages, then acknowledge each."""
        found = [self._queue.get(block=False, raw=True) for _ in range(size)]
        return sum(self._queue.ack(id=one["pqid"]) is not None for one in found)

    def forget(self) -> None:
        """Delete acknowledged messages."""
        self._queue.clear_acked_data(max_delete=-1, keep_latest=0)

    def close(self) -> None:
        """Close the file."""
        self._queue.close()


class LiteQueuePeer(SqliteQueue):
    """`LiteQueue` of litequeue."""

    name = "litequeue"
    package = "litequeue"
    module = "litequeue"

    def open(self, directory: Path) -> None:
        """Open the queue with a sync for each commit."""
        from litequeue import LiteQueue

        self._queue: LiteQueue = LiteQueue(directory / "queue.db")
        self._queue.conn.execute(SYNC_FULL)

    def put(self, payloads: list[bytes]) -> int:
        """Store the payloads in one transaction; it carries text."""
        texts = [payload.decode() for payload in payloads]
        with self._queue.transaction():
            return len({self._queue.put(text).message_id for text in texts})

    def take(self, size: int) -> int:
        """Read `size` messages, then acknowledge all in one transaction."""
        found = [message for _ in range(size) if (message := self._queue.pop()) is not None]
        with self._queue.transaction():
            for message in found:
                self._queue.done(message.message_id)
        return len(found)

    def forget(self) -> None:
        """Delete acknowledged messages."""
        self._queue.prune()

    def close(self) -> None:
        """Close the file."""
        self._queue.close()
