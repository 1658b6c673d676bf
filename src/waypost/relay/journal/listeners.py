"""Callbacks for the moments of a batch: closed, durable, visible."""

from collections.abc import Callable

from waypost.relay.journal.segments import Position


class CommitListeners:
    """Callbacks for the three moments of a batch, each called in the order of registration.

    on_batch_closed  it accepts no more events: the state is exactly that at `position`
    on_commit        it is durable
    on_visible       it is durable, and an endpoint may have messages to deliver
    """

    def __init__(self) -> None:
        self._on_batch_closed: list[Callable[[Position], None]] = []
        self._on_commit: list[Callable[[], None]] = []
        self._on_visible: list[Callable[[str], None]] = []

    def on_batch_closed(self, callback: Callable[[Position], None]) -> None:
        """Call `callback(position)` whenever a batch is closed."""
        self._on_batch_closed.append(callback)

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback()` whenever a batch has become durable."""
        self._on_commit.append(callback)

    def on_visible(self, callback: Callable[[str], None]) -> None:
        """Call `callback(endpoint)` whenever an endpoint may have messages to deliver."""
        self._on_visible.append(callback)

    def batch_closed(self, position: Position) -> None:
        """Notify of a closed batch."""
        for callback in self._on_batch_closed:
            callback(position)

    def committed(self) -> None:
        """Notify of a durable batch."""
        for callback in self._on_commit:
            callback()

    def visible(self, endpoint: str) -> None:
        """Notify of an endpoint that may have messages to deliver."""
        for callback in self._on_visible:
            callback(endpoint)
