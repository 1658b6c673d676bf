"""Delivery confirmations of sent messages, for listeners and for later queries."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator

from waypost.client.errors import DeliveryTimedOut
from waypost.client.feeds import Feed
from waypost.client.pending import PendingFutures
from waypost.wire.frames import DeliveryConfirm

REMEMBERED_MAX = 10_000
"""Confirmations kept for later queries; the oldest is dropped first."""


class DeliveryConfirmations:
    """The most recent delivery confirmations of one agent."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, DeliveryConfirm] = OrderedDict()
        self._pending: PendingFutures[str, DeliveryConfirm] = PendingFutures()
        self._feed: Feed[DeliveryConfirm] = Feed()
        self._problem: Exception | None = None

    @property
    def is_awaited(self) -> bool:
        """Return whether a caller waits for a confirmation."""
        return len(self._pending) > 0

    def add(self, confirm: DeliveryConfirm) -> None:
        """Record a confirmation and pass it to listeners and waiting callers."""
        self._recent.setdefault(confirm.message_id, confirm)
        if len(self._recent) > REMEMBERED_MAX:
            self._recent.popitem(last=False)
        if self._pending:
            self._pending.resolve(confirm.message_id, confirm)
        self._feed.put(confirm)

    async def wait_for(self, message_id: str, timeout_s: float) -> DeliveryConfirm:
        """Return the first confirmation of a message. Raises `DeliveryTimedOut`."""
        known = self._recent.get(message_id)
        if known is not None:
            return known
        if self._problem is not None:
            raise self._problem
        confirm = self._pending.expect(message_id)
        try:
            async with asyncio.timeout(timeout_s):
                return await confirm
        except TimeoutError:
            raise DeliveryTimedOut(f"{message_id} not confirmed within {timeout_s:g} s") from None
        finally:
            self._pending.forget(message_id, confirm)

    def listen(self) -> AsyncIterator[DeliveryConfirm]:
        """Return an iterator over all confirmations from now on, until the agent ends."""
        return self._feed.listen()

    def end(self, problem: Exception | None) -> None:
        """End every listener and fail every waiting caller."""
        self._problem = problem
        if problem is not None:
            self._pending.fail_all(problem)
        self._feed.end()
