"""Handlers of signals: called as signals come, none of which is kept for later."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from waypost.client.websocket import log
from waypost.policy.bounds import signal_listeners_max
from waypost.policy.errors import InvalidInput
from waypost.wire.frames import Signalled
from waypost.wire.payloads import Signal

SignalHandler = Callable[[str, Signal], object]
"""Called with the sender (empty for the relay) and the signal; may be a coroutine function."""

Stop = Callable[[], None]

AT_WORK_MAX = 1000


class SignalHandlers:
    """Calls handlers in the order in which they were added."""

    def __init__(self) -> None:
        self._handlers: dict[object, SignalHandler] = {}
        self._at_work: set[asyncio.Task[None]] = set()

    def add(self, handler: SignalHandler) -> Stop:
        """Call `handler` from now on; returns the function that ends it."""
        if len(self._handlers) >= signal_listeners_max:
            raise InvalidInput(f"no more than {signal_listeners_max:,} signal handlers are kept")
        ticket = object()
        self._handlers[ticket] = handler
        return lambda: void(self._handlers.pop(ticket, None))

    def call(self, signalled: Signalled) -> None:
        """Call everyone; one that raises is logged and stops no other."""
        for handler in list(self._handlers.values()):
            try:
                result = handler(signalled.sender, signalled.signal)
            except Exception:
                log.exception("a signal handler raised")
                continue
            if inspect.iscoroutine(result):
                self._go_on(result)

    def cancel(self) -> None:
        """Stop handlers that are at work."""
        for task in self._at_work:
            task.cancel()

    def _go_on(self, handling: Coroutine[Any, Any, object]) -> None:
        if len(self._at_work) >= AT_WORK_MAX:
            handling.close()  # signals may be lost; memory may not
            return

        async def work() -> None:
            try:
                await handling
            except Exception:
                log.exception("a signal handler raised")

        task = asyncio.get_running_loop().create_task(work())
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)


def void(_: object) -> None:
    """For callbacks whose result nobody wants."""
