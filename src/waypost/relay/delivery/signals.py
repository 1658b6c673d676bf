"""Ephemeral signals: emitted to current listeners, never stored or journaled."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from waypost.policy.admission import DeliveryVerdict
from waypost.policy.bounds import signal_listeners_max
from waypost.policy.errors import InvalidInput
from waypost.policy.settings import Settings
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import validate_pattern, validate_subject
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.wire.envelopes import instant
from waypost.wire.payloads import Signal, SignalType, validate_signal

log = logging.getLogger("waypost.relay")

SignalHandler = Callable[[str, Signal], object]


class Signals:
    """The signal listeners, by pattern."""

    def __init__(self) -> None:
        self._listeners: SubjectIndex[SignalHandler] = SubjectIndex()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_listeners(self) -> bool:
        """Whether there is any listener."""
        return len(self._listeners) > 0

    def emit(self, subject: str, signal: Signal) -> int:
        """Call every matching listener; return their number. Errors of a listener are logged."""
        validate_subject(subject)
        checked = validate_signal(signal)
        listeners = self._listeners.matching(subject)
        for listener in listeners:
            try:
                result = listener(subject, checked)
            except Exception:
                log.exception("a signal listener for %s raised", subject)
                continue
            if inspect.iscoroutine(result):
                self._run_listener(subject, result)
        return len(listeners)

    def _run_listener(self, subject: str, listener: Coroutine[Any, Any, object]) -> None:
        """Run an async listener in a task, and keep the task until it is done."""

        async def run() -> None:
            try:
                await listener
            except Exception:
                log.exception("a signal listener for %s raised", subject)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def listen(self, pattern: str, handler: SignalHandler) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        validate_pattern(pattern)
        if len(self._listeners) >= signal_listeners_max:
            raise InvalidInput(f"too many listeners: at most {signal_listeners_max:,} are allowed")
        ticket = self._listeners.add(pattern, handler)

        def stop() -> None:
            self._listeners.remove(pattern, ticket)

        return stop

    def detach_all(self) -> None:
        """Remove every listener, and cancel running ones."""
        for task in self._tasks:
            task.cancel()
        self._listeners = SubjectIndex()


class PressureSignals:
    """Emits signals about pressure and evictions to senders, on their own subjects."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def pressure(
        self,
        sender: str,
        mailbox: Mailbox,
        verdict: DeliveryVerdict,
        settings: Settings,
        at_us: int,
    ) -> None:
        """Signal that a recipient's mailbox is filling up ("warning") or at its cap ("critical").

        Only the cap matters: another check may have rejected the message below it.
        """
        if not self._signals.has_listeners:
            return
        limit = settings.backpressure.max_mailbox_size
        data = {
            "pressure": verdict.pressure,
            "current_size": verdict.depth,
            "max_mailbox_size": limit,
        }
        state = "warning" if verdict.depth < limit else "critical"
        self._emit(sender, state, mailbox.subject, at_us, data)

    def evicted(self, message: Message, at_us: int) -> None:
        """Signal that a message of its sender was evicted."""
        if self._signals.has_listeners:
            data = {"message_id": message.id, "size": message.size}
            self._emit(message.sender, "evicted", message.endpoint, at_us, data)

    def _emit(
        self, sender: str, state: str, endpoint: str, at_us: int, data: Mapping[str, object]
    ) -> None:
        signal = Signal(
            type=SignalType.BACKPRESSURE,
            state=state,
            endpoint_subject=endpoint,
            timestamp=instant(at_us),
            data=data,
        )
        self._signals.emit(sender, signal)
