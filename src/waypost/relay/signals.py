"""Ephemeral signals: delivered to whoever listens now, never stored, never journaled."""

import logging
from collections.abc import Callable

from waypost.policy.bounds import signal_listeners_max
from waypost.policy.errors import InvalidInput
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import validate_pattern, validate_subject
from waypost.wire.messages import Signal, validate_signal

log = logging.getLogger("waypost.relay")

SignalHandler = Callable[[str, Signal], object]


class Signals:
    """Patterns and who listens under them."""

    def __init__(self) -> None:
        self._listeners: SubjectIndex[SignalHandler] = SubjectIndex()

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
                listener(subject, checked)
            except Exception:
                log.exception("a signal listener for %s raised", subject)
        return len(listeners)

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
        """Drop every listener."""
        self._listeners = SubjectIndex()
