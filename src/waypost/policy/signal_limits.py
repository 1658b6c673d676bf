"""Limits of signals between agents: size, and rate for each sender and each pair.

Signals are neither stored nor journaled: what is over a limit is dropped, and its sender notified.
"""

import msgspec

from waypost.policy.rate_limits import PositiveInt, RateWindows

_FORGET_AT = 1024


class SignalsConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """In 10 s, 200 signals of one sender, 50 of them to one recipient; each at most 4 KiB."""

    window_secs: PositiveInt = 10
    max_per_window: PositiveInt = 200
    max_per_pair: PositiveInt = 50
    max_bytes: PositiveInt = 4096


class SignalWindows:
    """The recent signals of each sender and each pair."""

    def __init__(self) -> None:
        self._windows = RateWindows()
        self._forget_at = _FORGET_AT

    def __len__(self) -> int:
        return len(self._windows)

    def admit(self, sender: str, recipient: str, now_ms: int, config: SignalsConfig) -> str:
        """Count a signal and return an empty text, or return why it is dropped."""
        windows, window_ms = self._windows, config.window_secs * 1000
        pair = f"{sender} {recipient}"
        for key, limit, scope in (
            (sender, config.max_per_window, "signals"),
            (pair, config.max_per_pair, "signals to one agent"),
        ):
            if windows.count(key, now_ms, window_ms) >= limit:
                return f"signal dropped: at most {limit:,} {scope} in {config.window_secs} s"
        windows.record(sender, now_ms)
        windows.record(pair, now_ms)
        if len(windows) > self._forget_at:
            windows.sweep(now_ms, window_ms)
            self._forget_at = max(_FORGET_AT, 2 * len(windows))
        return ""
