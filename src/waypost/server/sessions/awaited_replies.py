"""Messages of one session whose sender waits: for a reply, or for the decision of a partition.

Rule 1  A sender that waits for a reply is notified if all recipients fail. At most
        `awaited_replies_max` are known, the newest.
Rule 2  A message that another partition decides about is answered when that is done, whatever was
        answered meanwhile: a partition that cannot be reached must not hold up other answers.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from waypost.policy.bounds import awaited_replies_max
from waypost.relay.errors import RelayStopped
from waypost.relay.relay import Relay
from waypost.wire.frames import RequestFailure, Send
from waypost.wire.results import PublishResult


class AwaitedReplies:
    """Calls `on_failed` when the recipients of a message have failed."""

    def __init__(
        self, relay: Relay, subject: str, on_failed: Callable[[RequestFailure], None]
    ) -> None:
        self._relay = relay
        self._subject = subject
        self._on_failed = on_failed
        self._awaited: OrderedDict[str, None] = OrderedDict()

    def add(self, result: PublishResult, seconds: float) -> None:
        """Wait up to `seconds` for the reply to a message with this result."""
        message_id, copies = result.message_id, result.delivered_to
        until_us = self._relay.now_us() + round(seconds * 1_000_000)

        def on_failed(error: str) -> None:
            self._awaited.pop(message_id, None)
            self._on_failed(RequestFailure(message_id=message_id, error=error))

        self._awaited[message_id] = None
        self._relay.askers.add(self._subject, message_id, copies, until_us, on_failed)
        if len(self._awaited) > awaited_replies_max:
            self._forget_oldest()

    def clear(self) -> None:
        """Wait for no reply any more."""
        while self._awaited:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        message_id, _ = self._awaited.popitem(last=False)
        self._relay.askers.remove(self._subject, message_id)


class UndecidedSends:
    """Calls `on_decided` with a message and its result, `on_stopped` if the relay stops first."""

    def __init__(
        self,
        relay: Relay,
        on_decided: Callable[[Send, PublishResult], None],
        on_stopped: Callable[[str], None],
    ) -> None:
        self._relay = relay
        self._on_decided = on_decided
        self._on_stopped = on_stopped
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, request: Send, result: PublishResult) -> None:
        """Wait for the decision about a message with this incomplete result."""
        task = asyncio.get_running_loop().create_task(self._wait(request, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Wait for no decision any more."""
        for task in self._tasks:
            task.cancel()

    async def _wait(self, request: Send, result: PublishResult) -> None:
        try:
            self._on_decided(request, await self._relay.decided(result))
        except RelayStopped as stopped:
            self._on_stopped(str(stopped))
