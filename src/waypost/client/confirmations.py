"""Confirmations: who has got what we sent. For whoever listens, and for whoever asks later."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from waypost.client.errors import DeliveryTimedOut
from waypost.client.pending import Waiting
from waypost.wire.frames import DeliveryConfirm

REMEMBERED_MAX = 10_000
"""Confirmations kept for those who ask after they came, and for each listener that is slow. Past
it, the oldest goes."""


class Confirmations:
    """What has been confirmed lately."""

    def __init__(self) -> None:
        self._recent: dict[str, DeliveryConfirm] = {}
        self._waiting: Waiting[str, DeliveryConfirm] = Waiting()
        self._listeners: dict[object, deque[DeliveryConfirm]] = {}
        self._came = asyncio.Event()
        self._problem: Exception | None = None
        self._ended = False

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for one."""
        return len(self._waiting) > 0

    def came(self, confirm: DeliveryConfirm) -> None:
        """One more."""
        self._recent.setdefault(confirm.message_id, confirm)
        if len(self._recent) > REMEMBERED_MAX:
            del self._recent[next(iter(self._recent))]
        self._waiting.resolve(confirm.message_id, confirm)
        for queue in self._listeners.values():
            queue.append(confirm)
        self._came.set()

    async def of(self, message_id: str, timeout_s: float) -> DeliveryConfirm:
        """The first confirmation of a message. Raises `DeliveryTimedOut`."""
        known = self._recent.get(message_id)
        if known is not None:
            return known
        if self._problem is not None:
            raise self._problem
        confirm = self._waiting.expect(message_id)
        try:
            async with asyncio.timeout(timeout_s):
                return await confirm
        except TimeoutError:
            raise DeliveryTimedOut(f"{message_id} not confirmed within {timeout_s:g} s") from None
        finally:
            self._waiting.forget(message_id, confirm)

    def listen(self) -> AsyncIterator[DeliveryConfirm]:
        """Everything that is confirmed from now on, until the agent ends."""
        ticket, queue = object(), deque[DeliveryConfirm](maxlen=REMEMBERED_MAX)
        self._listeners[ticket] = queue
        return self._follow(ticket, queue)

    def end(self, problem: Exception | None) -> None:
        """No more will come."""
        self._ended = True
        self._problem = problem
        if problem is not None:
            self._waiting.fail_all(problem)
        self._came.set()

    async def _follow(
        self, ticket: object, queue: deque[DeliveryConfirm]
    ) -> AsyncIterator[DeliveryConfirm]:
        try:
            while True:
                while queue:
                    yield queue.popleft()
                if self._ended:
                    return
                self._came.clear()
                await self._came.wait()
        finally:
            self._listeners.pop(ticket, None)
