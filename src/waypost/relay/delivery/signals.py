"""Ephemeral signals: delivered to whoever listens now, never stored, never journaled."""

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
    """Patterns and who listens under them."""

    def __init__(self) -> None:
        self._listeners: SubjectIndex[SignalHandler] = SubjectIndex()
        self._at_work: set[asyncio.Task[None]] = set()

    @property
    def anyone(self) -> bool:
        """Whether anyone listens at all."""
        return len(self._listeners) > 0

    def emit(self, subject: str, signal: Signal) -> int:
        """Call every matching listener now; one that raises is logged and stops no other."""
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
                self._go_on(subject, result)
        return len(listeners)

    def _go_on(self, subject: str, listening: Coroutine[Any, Any, object]) -> None:
        """Let an async listener do its work; it is kept until it is done."""

        async def work() -> None:
            try:
                await listening
            except Exception:
                log.exception("a signal listener for %s raised", subject)

        task = asyncio.get_running_loop().create_task(work())
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    def listen(self, pattern: str, handler: SignalHandler) -> Callable[[], None]:
        """Attach a listener; returns the function that detaches it."""
        validate_pattern(pattern)
        if len(self._listeners) >= signal_listeners_max:
            raise InvalidInput(f"no more than {signal_listeners_max:,} signal listeners are kept")
        ticket = self._listeners.add(pattern, handler)

        def stop() -> None:
            self._listeners.remove(pattern, ticket)

        return stop

    def detach_all(self) -> None:
        """Drop every listener; those at work are cancelled."""
        for task in self._at_work:
            task.cancel()
        self._listeners = SubjectIndex()


class PressureSignals:
    """Signals about pressure and evictions; free of cost while nobody listens."""

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
        """A mailbox the sender writes to is filling up ("warning") or full ("critical")."""
        if not self._signals.anyone:
            return
        data = {
            "pressure": verdict.pressure,
            "current_size": verdict.depth,
            "max_mailbox_size": settings.backpressure.max_mailbox_size,
        }
        state = "warning" if verdict.reason is None else "critical"
        self._emit(sender, state, mailbox.subject, at_us, data)

    def evicted(self, message: Message, at_us: int) -> None:
        """A message of the sender had to make room."""
        if self._signals.anyone:
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
