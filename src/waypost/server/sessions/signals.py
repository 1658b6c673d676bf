"""Signals between agents: which agents get one.

Rule 1  Access rules, `patternSenders` and `maxFanout` hold for signals as for messages.
Rule 2  A signal to a pattern counts as one to each endpoint that it may reach, connected or not:
        its sender must not learn from its limits who is connected.
Rule 3  The sender's rate is checked before endpoints are looked up.
"""

from collections.abc import Sequence

import msgspec

from waypost.policy.admission import NO_PATTERNS_TEXT, admit_fan_out, may_use_patterns
from waypost.policy.errors import AccessDenied, InvalidMessage
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import reject_reserved
from waypost.policy.signal_limits import SignalWindows
from waypost.policy.subjects import is_literal, validate_pattern
from waypost.relay.relay import Relay
from waypost.server.sessions.errors import SignalDropped
from waypost.wire.payloads import Signal


class AgentSignals:
    """Admits the signals of agents; `counts` are those since the start, by outcome."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._windows = SignalWindows()
        self.counts = {"admitted": 0, "dropped": 0}

    def admit(self, sender: str, subject: str, signal: Signal) -> Sequence[str]:
        """Count a signal to a subject or pattern; return the subjects that get it.

        Raises as a publish does, `InvalidMessage` if it is too large, and `SignalDropped`.
        """
        validate_pattern(subject)
        reject_reserved(subject)
        try:
            recipients = self._admit(sender, subject, signal)
        except (InvalidMessage, SignalDropped):
            self.counts["dropped"] += 1
            raise
        self.counts["admitted"] += 1
        return recipients

    def _admit(self, sender: str, subject: str, signal: Signal) -> Sequence[str]:
        limits, now_ms = self._relay.settings.signals, self._relay.now_us() // 1000
        size = len(msgspec.json.encode(signal))
        if size > limits.max_bytes:
            raise InvalidMessage(
                f"signal of {size:,} bytes is over the limit of {limits.max_bytes:,} bytes"
                " (signals.maxBytes)"
            )
        problem = self._windows.check(sender, now_ms, limits)
        if problem:
            raise SignalDropped(problem)
        found = self._endpoints(sender, subject)
        access = self._relay.access
        allowed = [one for one in found if access.check_access(sender, one).allowed]
        recipients, problem = self._windows.admit(sender, allowed, now_ms, limits)
        if problem:
            raise SignalDropped(problem)
        if found and not allowed:
            raise AccessDenied(sender, subject)
        return recipients

    def _endpoints(self, sender: str, subject: str) -> Sequence[str]:
        if is_literal(subject):
            return (subject,)
        settings = self._relay.settings
        if not may_use_patterns(sender, settings):
            raise AccessDenied(sender, subject, NO_PATTERNS_TEXT)
        limit = settings.max_fanout or settings.signals.max_per_window
        found = self._relay.inspect().match_endpoints(subject, limit)
        if found is None:
            text = admit_fan_out(limit + 1, settings) or TOO_MANY_TEXT
            raise SignalDropped(text, Reason.FANOUT_EXCEEDED)
        return found


TOO_MANY_TEXT = "more endpoints match than a sender may signal: use a narrower pattern"
