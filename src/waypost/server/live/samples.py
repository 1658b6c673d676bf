"""What happened in one second, and how things stand now.

Rule 1  A sample is the difference of two counts that the relay keeps anyway: measuring costs the
        relay nothing while it works.
Rule 2  Percentiles are of the newest acknowledgements since the sample before, so many as are
        remembered (`waits_in_memory_max`): values that occurred, not estimates.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

_REJECTED = "rejected."


class Sample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`seconds` long, up to `at_us`. Counts are of what happened in it, the rest is how it ended.

    `wait_*_ms` are from arrival to acknowledgement, of `waits` messages; none, no percentiles.
    """

    at_us: int
    seconds: float
    accepted: int = 0
    leased: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0
    rejected: dict[str, int] = {}
    waits: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    pending: int = 0
    held: int = 0
    dead: int = 0
    bytes: int = 0
    inboxes: int = 0
    connected: int = 0
    pressure: float = 0.0


class Counting(Protocol):
    """What a relay counts while it works; see `Inspector`."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    def take_wait_times_us(self) -> list[int]: ...


class Sampler:
    """Remembers the counts of the last time."""

    def __init__(self, relay: Counting, at_us: int) -> None:
        self._relay = relay
        self._at_us = at_us
        self._before = Counter(relay.counts)
        relay.take_wait_times_us()  # those that recovery read back are from an earlier run

    def take(self, at_us: int) -> Sample:
        """What happened since the last time."""
        now, before = Counter(self._relay.counts), self._before
        seconds = max(at_us - self._at_us, 1) / 1_000_000
        self._before, self._at_us = now, at_us
        waits = self._relay.take_wait_times_us()
        happened = {kind: now[kind] - before[kind] for kind in now if now[kind] != before[kind]}
        return Sample(
            at_us=at_us,
            seconds=round(seconds, 3),
            accepted=happened.get("accepted", 0),
            leased=happened.get("leased", 0),
            acked=happened.get("acked", 0),
            failed=happened.get("failed", 0) + happened.get("evicted", 0),
            expired=happened.get("expired", 0),
            rejected={
                kind.removeprefix(_REJECTED): count
                for kind, count in happened.items()
                if kind.startswith(_REJECTED)
            },
            waits=len(waits),
            wait_p50_ms=percentile_ms(waits, 50),
            wait_p95_ms=percentile_ms(waits, 95),
        )


def percentile_ms(waits_us: Sequence[int], percent: int) -> float | None:
    """The smallest of these sorted times (µs) that `percent` of them do not exceed, in ms."""
    if not waits_us:
        return None
    rank = -(-len(waits_us) * percent // 100)
    return waits_us[rank - 1] / 1000
