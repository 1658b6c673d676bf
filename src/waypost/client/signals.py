"""Signal handlers, called as signals arrive. Signals are never stored."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from waypost.policy.bounds import signal_listeners_max
from waypost.policy.errors import InvalidInput
from waypost.wire.frames import Signalled
from waypost.wire.payloads import Signal

log = logging.getLogger("waypost.client")

SignalHandler = Callable[[str, Signal], object]
"""Called with the sender (empty for the relay) and the signal; may be a coroutine function."""

Stop = Callable[[], None]

RUNNING_MAX = 1000
RUNNING_MAX_BYTES = 16 * 1024 * 1024
"""Signals in running handlers; beyond either, a signal is dropped."""


class SignalHandlers:
    """Calls handlers in the order in which they were added."""

    def __init__(self) -> None:
        self._handlers: dict[object, SignalHandler] = {}
        self._running: dict[asyncio.Task[None], int] = {}
        self._running_bytes = 0

    def add(self, handler: SignalHandler) -> Stop:
        """Register `handler`; return the function that removes it."""
        if len(self._handlers) >= signal_listeners_max:
            raise InvalidInput(f"at most {signal_listeners_max:,} signal handlers per agent")
        key = object()
        self._handlers[key] = handler

        def remove() -> None:
            self._handlers.pop(key, None)

        return remove

    def call(self, signalled: Signalled, size: int) -> None:
        """Call every handler with a signal of `size` bytes.

        One that raises is logged and does not affect the rest.
        """
        for handler in list(self._handlers.values()):
            try:
                result = handler(signalled.sender, signalled.signal)
            except Exception:
                log.exception("signal handler raised")
                continue
            if inspect.iscoroutine(result):
                self._run(result, size)

    def cancel(self) -> None:
        """Cancel running handlers."""
        for task in self._running:
            task.cancel()

    def _run(self, handling: Coroutine[Any, Any, object], size: int) -> None:
        if len(self._running) >= RUNNING_MAX or self._running_bytes >= RUNNING_MAX_BYTES:
            handling.close()  # signals may be dropped; memory must stay bounded
            return

        async def run() -> None:
            try:
                await handling
            except Exception:
                log.exception("signal handler raised")

        task = asyncio.get_running_loop().create_task(run())
        self._running[task] = size
        self._running_bytes += size
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running_bytes -= self._running.pop(task)
