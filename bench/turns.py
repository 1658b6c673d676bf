"""The measurement of a rate. Contestants take turns, run by run.

A run publishes a number of messages, then reads and acknowledges the same number; both are timed
separately. A short run warms up and determines how many messages fill `seconds`. Every round
begins with the next contestant, so that none always follows the same other one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

TimedOperation = Callable[[int, int], Awaitable[float]]
"""Takes a number of messages and a number in flight; returns the seconds."""

Log = Callable[[str], None]
"""Shows what is being done."""


@dataclass(frozen=True, slots=True)
class Turns:
    """`runs` of about `seconds` each, after one of `warm_up` messages or one batch."""

    runs: int
    seconds: float
    log: Log
    warm_up: int = 500

    async def take(
        self, names: Sequence[str], operations: Sequence[Sequence[TimedOperation]], in_flight: int
    ) -> list[list[list[float]]]:
        """Return the rates of each run, by contestant and operation.

        The slowest operation of a contestant determines the number of its messages.
        """
        counts = []
        for name, own in zip(names, operations, strict=True):
            self.log(f"{name}, warming up")
            count = max(self.warm_up, in_flight)
            slowest = max([await operation(count, in_flight) for operation in own])
            counts.append(max(1, round(count / slowest * self.seconds / in_flight)) * in_flight)
        rates: list[list[list[float]]] = [[[] for _ in own] for own in operations]
        for run in range(self.runs):
            for turn in range(len(names)):
                at = (run + turn) % len(names)
                self.log(f"{names[at]}, {in_flight:,} in flight, run {run + 1} of {self.runs}")
                for which, operation in enumerate(operations[at]):
                    rates[at][which].append(counts[at] / await operation(counts[at], in_flight))
        return rates
