"""Keeps the leases of messages that the application is working on.

Rule 1  While an `async with message` block runs, its lease is extended, up to `extend_max_s`: after
        that the block counts as stuck, and the relay delivers the message again.
Rule 2  Short blocks cost nothing: there is one timer for all messages, at a third of the timeout
        that the relay's welcome states. It extends one message, because that is a sign of life for
        all of them.
Rule 3  Messages of blocked senders are acked by the same timer at the latest, or an agent that gets
        no others would look stuck.
"""

import asyncio
import logging
from collections.abc import Callable

from waypost.client.protocol.session import Session
from waypost.client.seal_memory import SealMemory
from waypost.policy.bounds import lease_extension_max_s, wait_max_s
from waypost.policy.errors import InvalidInput

log = logging.getLogger("waypost.client")

INTERVAL_MIN_S = 0.05
"""No relay keeps its agents busy with a short timeout."""


class LeaseKeeper:
    """Extends leases on the session of one agent. `wake` notifies the writer."""

    def __init__(self, session: Session, extend_max_s: float, wake: Callable[[], None]) -> None:
        self._session = session
        self._extend_max_s = extend_max_s
        self._wake = wake
        self._begun_s: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connected(self) -> None:
        """Start or restart the timer, with the timeout of a new connection."""
        self.stop()
        timeout_s = self._session.lease_timeout_s
        if timeout_s:
            interval_s = max(INTERVAL_MIN_S, timeout_s / 3)
            self._timer = asyncio.get_running_loop().call_later(interval_s, self._tick, interval_s)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def begin(self, message_id: str) -> None:
        """Keep the lease of a message from now on."""
        self._begun_s[message_id] = asyncio.get_running_loop().time()

    def end(self, message_id: str) -> None:
        """Keep the lease of a message no longer."""
        self._begun_s.pop(message_id, None)

    def _tick(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(interval_s, self._tick, interval_s)
        self._session.ack_withheld()
        for message_id, begun_s in self._begun_s.items():
            if interval_s / 2 <= loop.time() - begun_s < self._extend_max_s:
                self._session.extend(message_id, self._session.lease_timeout_s)
                break
        if self._session.has_unwritten:
            self._wake()


class HeldMessages:
    """The messages that the application of one agent has to ack or nack. `wake` notifies the
    writer."""

    def __init__(
        self,
        subject: str,
        session: Session,
        keeper: LeaseKeeper,
        seals: SealMemory,
        wake: Callable[[], None],
    ) -> None:
        self.newest_id = ""
        """The id of the message that the application took last."""
        self._subject = subject
        self._session = session
        self._keeper = keeper
        self._seals = seals
        self._wake = wake

    def mark_opened(self, seal: str) -> None:
        """Record that a sealed message was acknowledged: its seal does not open again."""
        self._seals.mark_opened(seal)

    def ack(self, message_id: str) -> None:
        """Acknowledge a message; see `Message.ack`."""
        self._session.ack(message_id)
        self._wake()

    def nack(self, message_id: str, delay: float, error: str, *, release: bool) -> None:
        """Return a message to the relay; see `Message.nack`."""
        if not 0 <= delay <= wait_max_s:
            raise InvalidInput(f"delay must be 0 to {wait_max_s:,} seconds, not {delay!r:.40}")
        self._session.nack(message_id, delay, error, release=release)
        self._wake()

    def extend(self, message_id: str, seconds: float) -> None:
        """Keep a message longer; see `Message.extend`."""
        if not 0 <= seconds <= lease_extension_max_s:
            bound = f"{lease_extension_max_s:,} seconds"
            raise InvalidInput(f"seconds must be 0 to {bound}, not {seconds!r:.40}")
        self._session.extend(message_id, seconds)
        self._wake()

    def begin(self, message_id: str) -> None:
        """Keep a message from now on; see `Message.keep`."""
        self._keeper.begin(message_id)

    def end(self, message_id: str) -> None:
        """Keep a message no longer."""
        self._keeper.end(message_id)

    def log_end(self, problem: Exception) -> None:
        """Log the exception that ends the agent while it holds a message: it may end a task whose
        result no one reads."""
        if self._session.holds(self.newest_id):
            text = "%s: closed by an exception while it held message %s"
            log.warning(text, self._subject, self.newest_id, exc_info=problem)

    def release(self, message_id: str) -> None:
        """Record that a message was dropped without ack or nack. Thread-safe."""
        self._session.release(message_id)
