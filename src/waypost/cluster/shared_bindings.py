"""Bindings of subjects to keys that all nodes share, as `identity.SUBJECT` of the shared values.

Rule 1  The first key to bind a subject owns it at every node: a binding is created, or replaces
        the very one that this node knows, or is not saved. One that was seen and not applied yet
        is not known: what is to replace it was decided without it.
Rule 2  A change of another node is applied here as soon as it is seen.
Rule 3  Nothing here waits for the event loop of the relays, nor does that wait for this: while a
        change is saved, `Bindings` is locked. So changes are written on a connection and a thread
        of their own, and those of other nodes are applied by another thread.
"""

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.kv import KeyValue

from waypost.cluster.shared_values import SharedValues, bucket_name
from waypost.cluster.streams import connect
from waypost.server.identity.binding_file import Binding
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.errors import IdentitiesDamaged, IdentitiesNotSaved

PREFIX = "identity."
SAVE_TIMEOUT_S = 10.0

T = TypeVar("T")


class SharedBindings:
    """A `BindingStore`. `open` and `close_connection` belong to the event loop of the relays."""

    def __init__(self, values: SharedValues) -> None:
        self._values = values
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._writer = threading.Thread(
            target=self._loop.run_forever, name="waypost-identities", daemon=True
        )
        self._learner = concurrent.futures.ThreadPoolExecutor(1, "waypost-identities-seen")
        self._client: Client | None = None
        self._bucket: KeyValue | None = None
        self._revisions: dict[str, int] = {}
        """Those that were written here and may not have been seen yet."""
        self._unapplied: Counter[str] = Counter()
        """How many changes of a key were seen and not applied yet."""
        self._unapplied_lock = threading.Lock()

    @classmethod
    async def open(
        cls, servers: Sequence[str], cluster: str, values: SharedValues
    ) -> "SharedBindings":
        """Connect. Raises `LogUnavailable`."""
        opened = cls(values)
        opened._writer.start()
        try:
            connecting = opened._connect(servers, cluster)
            await asyncio.wrap_future(opened._start(connecting))
        except BaseException:
            await opened.close_connection()
            raise
        return opened

    async def close_connection(self) -> None:
        """Stop the threads."""
        self.close()
        self._learner.shutdown(wait=False)
        await asyncio.wrap_future(self._start(self._disconnect()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._writer.join)
        self._loop.close()

    async def _connect(self, servers: Sequence[str], cluster: str) -> None:
        self._client = await connect(servers)
        self._bucket = await self._client.jetstream().key_value(bucket_name(cluster))

    async def _disconnect(self) -> None:
        """Close the connection, and end what it left in its event loop."""
        try:
            if self._client is not None:
                await self._client.close()
        except (OSError, nats.errors.Error):
            pass  # its server may be gone
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _start(self, act: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        return asyncio.run_coroutine_threadsafe(act, self._loop)

    def follow(self, bindings: Bindings) -> None:
        """Apply the changes of other nodes to `bindings`, from now on."""

        def learn(key: str, value: bytes | None) -> None:
            if value is not None and not self._is_closed:
                self._note_unapplied(key, 1)
                self._learner.submit(apply, key, value)

        def apply(key: str, value: bytes) -> None:
            try:
                bindings.learn([decode_binding(key, value)])
            finally:
                self._note_unapplied(key, -1)

        self._values.on_change(PREFIX, learn)

    def _note_unapplied(self, key: str, more: int) -> None:
        with self._unapplied_lock:
            self._unapplied[key] += more
            if not self._unapplied[key]:
                del self._unapplied[key]

    def read(self) -> dict[str, Binding]:
        """Return all bindings by subject, freed ones included. Raises `IdentitiesDamaged`."""
        found = (decode_binding(key, one.value) for key, one in self._values.under(PREFIX).items())
        return {one.subject: one for one in found if not one.freed or one.revoked}

    def append(self, changes: Sequence[Binding]) -> None:
        """Save changes one by one; they are replicated on return. Raises `IdentitiesNotSaved`."""
        if self._is_closed:
            raise IdentitiesNotSaved(f"{changes[0].subject} cannot be saved: the relay is closed")
        saving = self._start(self._save(changes))
        try:
            saving.result(SAVE_TIMEOUT_S)
        except (TimeoutError, OSError, nats.errors.Error, nats.js.errors.Error) as problem:
            saving.cancel()
            raise IdentitiesNotSaved(
                f"{changes[0].subject} cannot be saved: the servers of the cluster did not answer"
                f" ({type(problem).__name__}); try again"
            ) from None

    async def _save(self, changes: Sequence[Binding]) -> None:
        assert self._bucket is not None
        for one in changes:
            key = PREFIX + one.subject
            seen, own = self._values.get(key), self._revisions.get(key, 0)
            last = max(seen.revision if seen is not None else 0, own)
            if last > own and key in self._unapplied:
                raise _changed_elsewhere(one)
            try:
                written = await self._bucket.update(key, msgspec.json.encode(one), last=last)
            except nats.js.errors.KeyWrongLastSequenceError:
                raise _changed_elsewhere(one) from None
            self._revisions[key] = written

    def drop_replaced_lines(self, *bindings: Collection[Binding]) -> None:
        """Do nothing: the bucket keeps the last value of each subject only."""

    def close(self) -> None:
        """Accept no more changes."""
        self._is_closed = True


def _changed_elsewhere(binding: Binding) -> IdentitiesNotSaved:
    return IdentitiesNotSaved(
        f"{binding.subject} was changed at another node at the same time: try again"
    )


def decode_binding(key: str, value: bytes) -> Binding:
    """Return the binding that a shared value holds. Raises `IdentitiesDamaged`."""
    try:
        binding = msgspec.json.decode(value, type=Binding)
    except (msgspec.DecodeError, UnicodeDecodeError):
        binding = None
    if binding is None or PREFIX + binding.subject != key:
        raise IdentitiesDamaged(
            f"the shared value {key} is damaged, so the owner of a subject is unknown: restore the"
            " key-value bucket of the cluster from a backup"
        )
    return binding
