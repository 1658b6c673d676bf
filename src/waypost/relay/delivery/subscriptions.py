"""Subscriptions: patterns with handlers, in the order they were added.

Patterns are also written to `<data>/subscriptions.json`, for information only: a pattern without
a live handler never claims a message.

Rule 1  A change is written at the end of the event loop's turn, by a thread: the loop never waits.
Rule 2  Changes during a write share the next one. After a write, the next one waits nine times as
        long as it took, so that a large file cannot keep the relay busy.
Rule 3  A failed write is repeated by the next sweep.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.files import read_file
from waypost.policy.bounds import subscriptions_file_max_bytes, subscriptions_max
from waypost.policy.errors import InvalidInput
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import validate_pattern
from waypost.relay.data_dir import replace_file
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.identifiers import UlidFactory

log = logging.getLogger("waypost.relay")

MessageHandler = Callable[[Envelope], Awaitable[object] | object]

_PAUSE_FACTOR = 9


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscribed pattern; `live` if it has a handler now. `id` is a ULID."""

    id: str
    pattern: str
    created_at: datetime
    live: bool = True


class Subscriptions:
    """Patterns and their handlers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._make_id = UlidFactory(secrets.token_bytes).make
        self._index: SubjectIndex[MessageHandler] = SubjectIndex()
        self._live: dict[int, SubscriptionInfo] = {}
        self._cache: dict[str, tuple[MessageHandler, ...]] = {}
        self._previous = self._read()
        self._unsaved = False
        self._next_save: asyncio.Handle | None = None
        self._saving: asyncio.Future[None] | None = None

    def add(
        self, pattern: str, handler: MessageHandler, at_us: int, *, listed: bool = True
    ) -> Callable[[], None]:
        """Add a handler; return a function that removes it. Unless `listed`, it is not in the file.

        The file has a change shortly after: a thread writes it once this turn of the loop is over.
        """
        validate_pattern(pattern)
        if len(self._index) >= subscriptions_max:
            raise InvalidInput(f"too many subscriptions: at most {subscriptions_max:,} are allowed")
        ticket = self._index.add(pattern, handler)
        self._cache.clear()
        if listed:
            identifier = self._make_id(at_us // 1000)
            self._live[ticket] = SubscriptionInfo(identifier, pattern, instant(at_us))
            self._changed()

        def stop() -> None:
            if self._index.remove(pattern, ticket):
                self._cache.clear()
                if self._live.pop(ticket, None) is not None:
                    self._previous.pop(pattern, None)
                    self._changed()

        return stop

    def handlers(self, endpoint: str) -> tuple[MessageHandler, ...]:
        """Return the handlers whose pattern matches `endpoint`."""
        if not self._index:
            return ()
        found = self._cache.get(endpoint)
        if found is None:
            found = self._cache[endpoint] = tuple(self._index.matching(endpoint))
        return found

    def forget(self, endpoint: str) -> None:
        """Drop the cached handlers of an unregistered endpoint."""
        self._cache.pop(endpoint, None)

    def listing(self) -> list[SubscriptionInfo]:
        """Return live subscriptions, then patterns of an earlier run without a handler."""
        live = list(self._live.values())
        taken = {subscription.pattern for subscription in live}
        return live + [old for old in self._previous.values() if old.pattern not in taken]

    def save(self) -> None:
        """Start writing the patterns to the file, if they changed and no write is under way."""
        if self._next_save is not None:
            self._next_save.cancel()
            self._next_save = None
        if self._unsaved and self._saving is None:
            self._unsaved = False
            loop = asyncio.get_running_loop()
            begun = time.monotonic()
            self._saving = loop.run_in_executor(None, self._write, self.listing())
            self._saving.add_done_callback(lambda done: self._saved(done, begun))

    async def detach_all(self) -> None:
        """Remove every handler; the file keeps the patterns."""
        self._index = SubjectIndex()
        self._cache.clear()
        while self._saving is not None:
            await asyncio.wait([self._saving])
            await asyncio.sleep(0)  # lets `_saved` run
        self.save()
        if self._saving is not None:
            await asyncio.wait([self._saving])

    def _changed(self) -> None:
        self._unsaved = True
        if self._next_save is None and self._saving is None:
            self._next_save = asyncio.get_running_loop().call_soon(self.save)

    def _saved(self, done: asyncio.Future[None], begun: float) -> None:
        self._saving = None
        problem = done.exception()
        if problem is not None:
            self._unsaved = True
            log.warning("%s not written: %s", self._path, problem)
        elif self._unsaved:
            pause = _PAUSE_FACTOR * (time.monotonic() - begun)
            self._next_save = asyncio.get_running_loop().call_later(pause, self.save)

    def _write(self, listing: list[SubscriptionInfo]) -> None:
        content = msgspec.json.encode([_to_json(one) for one in listing])
        replace_file(self._path, msgspec.json.format(content, indent=2) + b"\n")

    def _read(self) -> dict[str, SubscriptionInfo]:
        """Read the patterns of an earlier run; ignore an unreadable file."""
        try:
            content = read_file(self._path, subscriptions_file_max_bytes)
            kept = msgspec.json.decode(content, type=list[_Remembered])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return {one.pattern: self._without_handler(one) for one in kept[:subscriptions_max]}

    def _without_handler(self, one: "_Remembered") -> SubscriptionInfo:
        """Return a pattern of an earlier run, with a new id if it was written without one."""
        identifier = one.id or self._make_id(max(0, int(one.created_at.timestamp() * 1000)))
        return SubscriptionInfo(identifier, one.pattern, one.created_at, live=False)


class _Remembered(msgspec.Struct):
    pattern: str
    created_at: datetime
    id: str = ""


def _to_json(subscription: SubscriptionInfo) -> dict[str, object]:
    return {
        "id": subscription.id,
        "pattern": subscription.pattern,
        "created_at": subscription.created_at,
    }
