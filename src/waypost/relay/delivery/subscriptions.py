"""Who wants to hear of messages: patterns with handlers, in the order they were subscribed.

Patterns are also kept in `<data>/subscriptions.json`, for people to look at: one without a live
handler never claims a message.
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
    """A pattern someone subscribed to; `live` if a handler is attached now."""

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
        self._remembered = _read(path)
        self._unsaved = False

    def add(self, pattern: str, handler: Handler, at: datetime) -> Callable[[], None]:
        """Attach `handler`; returns the function that detaches it."""
        validate_pattern(pattern)
        if len(self._live) >= subscriptions_max:
            raise InvalidInput(f"no more than {subscriptions_max:,} subscriptions are kept")
        ticket = self._index.add(pattern, handler)
        self._live[ticket] = Subscription(pattern, at)
        self._changed()

        def stop() -> None:
            if self._index.remove(pattern, ticket):
                del self._live[ticket]
                self._remembered.pop(pattern, None)
                self._changed()

        return stop

    def handlers(self, endpoint: str) -> tuple[Handler, ...]:
        """The handlers whose pattern covers `endpoint`."""
        if not self._live:
            return ()
        found = self._cache.get(endpoint)
        if found is None:
            found = self._cache[endpoint] = tuple(self._index.matching(endpoint))
        return found

    def forget(self, endpoint: str) -> None:
        """An endpoint is gone."""
        self._cache.pop(endpoint, None)

    def listing(self) -> list[Subscription]:
        """Live subscriptions, then patterns remembered from before that nobody took up again."""
        live = list(self._live.values())
        taken = {subscription.pattern for subscription in live}
        return live + [old for old in self._remembered.values() if old.pattern not in taken]

    def save(self) -> None:
        """Write the patterns down, if they changed. They are only for people to look at."""
        if not self._unsaved:
            return
        content = msgspec.json.encode([_plain(one) for one in self.listing()])
        try:
            replace_file(self._path, msgspec.json.format(content, indent=2) + b"\n")
            self._unsaved = False
        except OSError as problem:
            log.warning("%s not written: %s", self._path, problem)

    def detach_all(self) -> None:
        """Drop every handler; the patterns stay remembered."""
        self.save()
        self._index = SubjectIndex()
        self._cache.clear()

    def _changed(self) -> None:
        self._cache.clear()
        self._unsaved = True


def _plain(subscription: Subscription) -> dict[str, object]:
    return {"pattern": subscription.pattern, "created_at": subscription.created_at}


def _read(path: Path) -> dict[str, Subscription]:
    """Patterns from an earlier run. A file that cannot be read is no reason not to start."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=list[Subscription])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {one.pattern: Subscription(one.pattern, one.created_at, False) for one in kept}
