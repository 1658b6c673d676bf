"""Values that all nodes of a cluster share, in a key-value bucket of JetStream.

Rule 1  A value is replaced by naming the revision that was read; of two that replace the same
        one, the second fails.
Rule 2  Every node has a copy in memory. Changes reach it within moments, in order. The server that
        sends them may be lost: a node that hears nothing asks for the last revision, and reads all
        values again if it has not seen that.
Rule 3  The bucket is as durable as the logs: stored in files, on as many servers.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.kv import KV_DEL, KV_PURGE, KeyValue

from waypost.cluster.jetstream import delete_consumer
from waypost.relay.errors import LogUnavailable, LogUnusable

log = logging.getLogger("waypost.cluster")

VALUE_MAX_BYTES = 512 * 1024
RELOAD_S = 300.0
"""All values are read again as often."""
CHECK_S = 2.0
"""After as long without a change, a node checks that it has missed none."""
RETRY_S = 1.0
OPEN_S = 15.0
"""How long to wait for the next value when all are read for the first time."""
WATCH_IDLE_S = 30.0
"""After as long, the servers delete the consumer of a watch that was not ended."""

OnChange = Callable[[str, bytes | None], None]


class SharedValue(NamedTuple):
    """A value and the revision that replacing it has to name."""

    value: bytes
    revision: int


class SharedValues:
    """The values of one cluster. Use it on the event loop it was opened on."""

    def __init__(self, jetstream: JetStreamContext, bucket: KeyValue, name: str) -> None:
        self._jetstream = jetstream
        self._bucket = bucket
        self._stream = f"KV_{name}"
        self._values: dict[str, SharedValue] = {}
        self._listeners: list[tuple[str, OnChange]] = []
        self._loaded = asyncio.Event()
        self._problem = ""
        """Why the last watch ended."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, jetstream: JetStreamContext, cluster: str) -> "SharedValues":
        """Open the bucket of a cluster and read all values. Raises `LogUnusable` if there is none,
        `LogUnavailable` if it cannot be read."""
        name = bucket_name(cluster)
        try:
            bucket = await jetstream.key_value(name)
        except nats.js.errors.NotFoundError:
            raise LogUnusable(
                f"there is no cluster {cluster!r} at these servers: check its name, or create it"
                " with 'waypost cluster create'"
            ) from None
        except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as problem:
            raise LogUnavailable(f"the cluster {cluster!r} did not answer: {problem}") from None

        opened = cls(jetstream, bucket, name)
        opened._task = asyncio.create_task(opened._follow())
        if not await opened._is_loaded():
            await opened.close()
            why = opened._problem or "no answer"
            raise LogUnavailable(f"the shared values of {cluster!r} cannot be read: {why}")
        return opened

    async def _is_loaded(self) -> bool:
        """Wait for all values; return False once none has arrived for `OPEN_S`."""
        assert self._task is not None
        loaded = asyncio.create_task(self._loaded.wait())
        known = -1
        while not (loaded.done() or self._task.done()) and len(self._values) > known:
            known = len(self._values)
            ends = [loaded, self._task]
            await asyncio.wait(ends, timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        loaded.cancel()
        return self._loaded.is_set()

    @staticmethod
    async def create(jetstream: JetStreamContext, cluster: str, replicas: int = 3) -> None:
        """Create the bucket of a cluster; do nothing if there is one like it.

        Raises `LogUnusable` or `LogUnavailable` if it cannot be.
        """
        config = KeyValueConfig(
            bucket=bucket_name(cluster),
            description=f"settings, access rules, secrets and identities of {cluster}",
            max_value_size=VALUE_MAX_BYTES,
            storage=StorageType.FILE,
            replicas=replicas,
        )
        try:
            await jetstream.create_key_value(config=config)
        except nats.js.errors.APIError as problem:
            raise LogUnusable(
                f"the cluster {cluster!r} cannot be created: {problem.description}; {replicas}"
                " replicas need as many servers with JetStream"
            ) from None
        except (nats.errors.Error, OSError, TimeoutError) as problem:
            raise LogUnavailable(f"the cluster {cluster!r} was not created: {problem}") from None

    async def close(self) -> None:
        """Stop following changes."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def get(self, key: str) -> SharedValue | None:
        """Return a value as far as this node knows, or None."""
        return self._values.get(key)

    def under(self, prefix: str) -> dict[str, SharedValue]:
        """Return the values whose keys begin with `prefix`."""
        return {key: one for key, one in self._values.items() if key.startswith(prefix)}

    def on_change(self, prefix: str, callback: OnChange) -> None:
        """Call `callback(key, value)` after changes below `prefix`; the value of one that was
        deleted is None."""
        self._listeners.append((prefix, callback))

    async def replace(self, key: str, value: bytes, revision: int = 0) -> bool:
        """Replace the value of that revision (0: there is none yet); return whether it was so."""
        try:
            written = await self._bucket.update(key, value, last=revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            await self._read_again(key)
            return False
        self._learn(key, SharedValue(value, written))
        return True

    async def put(self, key: str, value: bytes) -> None:
        """Set a value, whatever it was."""
        self._learn(key, SharedValue(value, await self._bucket.put(key, value)))

    async def create_once(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of `key`; the first node that asks makes it."""
        while (known := self._values.get(key)) is None:
            value = make()
            try:  # this also replaces what marks a deleted value
                self._learn(key, SharedValue(value, await self._bucket.create(key, value)))
            except nats.js.errors.KeyWrongLastSequenceError:
                await self._read_again(key)
        return known.value

    async def _read_again(self, key: str) -> None:
        try:
            found = await self._bucket.get(key)
        except nats.js.errors.KeyNotFoundError:
            return
        self._learn(key, SharedValue(found.value or b"", found.revision or 0))

    async def _follow(self) -> None:
        """Keep the copy up to date, from the first value on and again after every failure."""
        while not self._is_closed:
            try:
                await self._watch()
            except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as problem:
                self._problem = str(problem)
                log.warning("cluster: shared values are not followed: %s; trying again", problem)
                await asyncio.sleep(RETRY_S)

    async def _watch(self) -> None:
        """Read all values, then follow changes until it is time to read them again."""
        # Its methods are not annotated.
        watcher: Any = await self._bucket.watchall(inactive_threshold=WATCH_IDLE_S)
        try:
            # Asked after the watch has begun: of a value that was replaced before, the watch has
            # the new revision only.
            last = await self._last_revision()
            seen, newest = set[str](), 0
            while newest < last:
                # None should mark the end, but may come before the first value.
                if (entry := await watcher.updates()) is not None:
                    self._take(entry)
                    seen.add(entry.key)
                    newest = entry.revision or 0
            for key in self._values.keys() - seen:
                if self._values[key].revision <= last:  # a later one was written here meanwhile
                    self._learn(key, None)
            self._loaded.set()
            await self._take_changes(watcher, newest)
        finally:
            with suppress(nats.errors.Error, OSError):  # must not hide a cancellation
                await watcher.stop()
            await delete_consumer(self._jetstream, self._stream, watcher._sub)

    async def _last_revision(self) -> int:
        state = (await self._jetstream.stream_info(self._stream)).state
        return int(state.last_seq) if state.messages else 0

    async def _take_changes(self, watcher: Any, newest: int) -> None:
        """Take changes after revision `newest`, until one was missed, or it is time to reload.

        One that is not there yet was missed if it is not there after the next pause, either.
        """
        until, last = time.monotonic() + RELOAD_S, newest
        while not self._is_closed and time.monotonic() < until:
            try:
                entry = await watcher.updates(timeout=CHECK_S)
            except nats.errors.TimeoutError:
                if last > newest:
                    return
                last = await self._last_revision()
                continue
            if entry is not None:
                self._take(entry)
                newest = entry.revision or newest

    def _take(self, entry: KeyValue.Entry) -> None:
        is_gone = entry.operation in (KV_DEL, KV_PURGE)
        value = SharedValue(entry.value or b"", entry.revision or 0)
        self._learn(entry.key, None if is_gone else value)

    def _learn(self, key: str, found: SharedValue | None) -> None:
        """Notify of a change, and take it over, unless a newer value is known.

        In this order: another thread that reads the revision was notified of it before.
        """
        known = self._values.get(key)
        if found is not None and known is not None and found.revision <= known.revision:
            return
        before, after = known and known.value, found and found.value
        if before != after:
            for prefix, callback in self._listeners:
                if key.startswith(prefix):
                    callback(key, after)
        if found is None:
            self._values.pop(key, None)
        else:
            self._values[key] = found


def bucket_name(cluster: str) -> str:
    """Return the name of the bucket with the shared values of a cluster."""
    return f"waypost-{cluster}"
