"""Subscriptions: patterns with handlers, in the order they were added.

Patterns are also written to `<data>/subscriptions.json`, for information only: a pattern without
a live handler never claims a message.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.policy.bounds import subscriptions_max
from waypost.policy.errors import InvalidInput
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import validate_pattern
from waypost.relay.data_dir import replace_file
from waypost.wire.envelopes import Envelope

log = logging.getLogger("waypost.relay")

Handler = Callable[[Envelope], Awaitable[object] | object]


class Subscription(msgspec.Struct, frozen=True):
    """A subscribed pattern; `live` if it has a handler now."""

    pattern: str
    created_at: datetime
    live: bool = True


class Subscriptions:
    """Patterns and their handlers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index: SubjectIndex[Handler] = SubjectIndex()
        self._live: dict[int, Subscription] = {}
        self._cache: dict[str, tuple[Handler, ...]] = {}
        self._previous = _read(path)
        self._unsaved = False

    def add(self, pattern: str, handler: Handler, at: datetime) -> Callable[[], None]:
        """Add a handler; return a function that removes it."""
        validate_pattern(pattern)
        if len(self._live) >= subscriptions_max:
            raise InvalidInput(f"too many subscriptions: at most {subscriptions_max:,} are allowed")
        ticket = self._index.add(pattern, handler)
        self._live[ticket] = Subscription(pattern, at)
        self._changed()

        def stop() -> None:
            if self._index.remove(pattern, ticket):
                del self._live[ticket]
                self._previous.pop(pattern, None)
                self._changed()

        return stop

    def handlers(self, endpoint: str) -> tuple[Handler, ...]:
        """Return the handlers whose pattern matches `endpoint`."""
        if not self._live:
            return ()
        found = self._cache.get(endpoint)
        if found is None:
            found = self._cache[endpoint] = tuple(self._index.matching(endpoint))
        return found

    def forget(self, endpoint: str) -> None:
        """Drop the cached handlers of an unregistered endpoint."""
        self._cache.pop(endpoint, None)

    def listing(self) -> list[Subscription]:
        """Return live subscriptions, then patterns of an earlier run without a handler."""
        live = list(self._live.values())
        taken = {subscription.pattern for subscription in live}
        return live + [old for old in self._previous.values() if old.pattern not in taken]

    def save(self) -> None:
        """Write the patterns to the file, if they changed."""
        if not self._unsaved:
            return
        content = msgspec.json.encode([_to_json(one) for one in self.listing()])
        try:
            replace_file(self._path, msgspec.json.format(content, indent=2) + b"\n")
            self._unsaved = False
        except OSError as problem:
            log.warning("%s not written: %s", self._path, problem)

    def detach_all(self) -> None:
        """Remove every handler; the file keeps the patterns."""
        self.save()
        self._index = SubjectIndex()
        self._cache.clear()

    def _changed(self) -> None:
        self._cache.clear()
        self._unsaved = True


def _to_json(subscription: Subscription) -> dict[str, object]:
    return {"pattern": subscription.pattern, "created_at": subscription.created_at}


def _read(path: Path) -> dict[str, Subscription]:
    """Read the patterns of an earlier run; ignore an unreadable file."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=list[Subscription])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {one.pattern: Subscription(one.pattern, one.created_at, False) for one in kept}
