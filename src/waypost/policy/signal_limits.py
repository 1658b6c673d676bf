"""Limits of signals between agents: size, and rate for each sender and each pair.

Signals are neither stored nor journaled: what is over a limit is dropped, and its sender notified.
A signal to a pattern counts as one to each of its recipients.
"""

from collections.abc import Sequence

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

    def check(self, sender: str, now_ms: int, config: SignalsConfig, signals: int = 1) -> str:
        """Return why `sender` may not send so many signals now; empty if it may."""
        sent = self._windows.count(sender, now_ms, config.window_secs * 1000)
        if sent + signals <= config.max_per_window:
            return ""
        return _dropped(config.max_per_window, "signals", config)

    def admit(
        self, sender: str, recipients: Sequence[str], now_ms: int, config: SignalsConfig
    ) -> tuple[list[str], str]:
        """Count a signal to each recipient; return those that get it, or why it is dropped.

        Pairs at their limit are left out. Without recipients it counts as one signal.
        """
        windows, window_ms = self._windows, config.window_secs * 1000
        problem = self.check(sender, now_ms, config, max(1, len(recipients)))
        if problem:
            return [], problem
        pairs = {one: f"{sender} {one}" for one in recipients}
        within = [
            one
            for one, pair in pairs.items()
            if windows.count(pair, now_ms, window_ms) < config.max_per_pair
        ]
        if recipients and not within:
            return [], _dropped(config.max_per_pair, "signals to one agent", config)
        for one in within:
            windows.record(sender, now_ms)
            windows.record(pairs[one], now_ms)
        if not recipients:
            windows.record(sender, now_ms)
        if len(windows) > self._forget_at:
            windows.sweep(now_ms, window_ms)
            self._forget_at = max(_FORGET_AT, 2 * len(windows))
        return within, ""


def _dropped(limit: int, scope: str, config: SignalsConfig) -> str:
    return f"signal dropped: at most {limit:,} {scope} in {config.window_secs} s"
