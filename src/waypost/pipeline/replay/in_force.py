"""On an executor: the settings that would have been in force, event by event.

Nothing here is imported that an executor may have to unpack first.
"""

from typing import Any


class SettingsInForce:
    """Reads what `Eras.for_executors` made. `follow` before `reach`, and events in order."""

    def __init__(self, told: dict[str, Any]) -> None:
        from waypost.policy.settings import Settings, merge_settings

        self._settings = [merge_settings(Settings(), text) for text in told["texts"]]
        self._first = told["first"]
        self._told = told["eras"]
        self._left: list[tuple[int, bool, int, int]] = []
        self.until_seq = 0
        self.settings = self._settings[self._first[2]]
        self.recorded_max_hops: int = self._first[3]

    def follow(self, relay: str) -> None:
        """From here on events are of `relay`, from its first on."""
        eras = self._told.get(relay) or [self._first]
        self._left = list(reversed(eras))
        self.until_seq = 0
        self.reach(0)

    def reach(self, seq: int) -> bool:
        """Go on to event `seq`, which is at or past `until_seq`; whether the relay began anew."""
        restarted = False
        while self._left and self._left[-1][0] <= seq:
            _, restart, place, self.recorded_max_hops = self._left.pop()
            self.settings = self._settings[place]
            restarted = restarted or restart
        self.until_seq = self._left[-1][0] if self._left else 1 << 62
        return restarted

    def one_rate_window(self, relay: str) -> bool:
        """Whether the rate window of `relay` is of the same length in all eras."""
        eras = self._told.get(relay) or [self._first]
        return len({self._settings[era[2]].rate_limit.window_secs for era in eras}) == 1
