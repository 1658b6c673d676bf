"""What may be chosen about a simulation, and what is refused up front."""

import math
from pathlib import Path

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.simulate.scenarios import MIXED, SCENARIOS

AGENTS_MIN = 24
"""Every model has a few agents of its own; the rest must still be a crowd."""

DAYS_MIN, DAYS_MAX = 0.25, 366.0

START_US = 1_767_225_600_000_000
"""2026-01-01 00:00 UTC. Always the same, so that the same arguments give the same journal."""


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` counts publishes, refused ones included; `out` becomes a data directory.

    `days` is how much virtual time they are spread over, from `start_us` (µs since the epoch).
    """

    messages: int
    out: Path
    agents: int = 40
    seed: int = 0
    scenario: str = MIXED
    days: float = 2.0
    start_us: int = START_US

    @property
    def span_us(self) -> int:
        """How much virtual time the traffic is spread over, in µs."""
        return int(self.days * 86_400_000_000)

    def check(self) -> None:
        """Raise `InvalidInput` for what cannot be simulated."""
        if self.messages < 1:
            raise InvalidInput(f"messages must be 1 or more, not {self.messages}")
        if self.agents < AGENTS_MIN:
            raise InvalidInput(f"agents must be {AGENTS_MIN} or more, not {self.agents}")
        if not math.isfinite(self.days) or not DAYS_MIN <= self.days <= DAYS_MAX:
            raise InvalidInput(f"days must be {DAYS_MIN:g} to {DAYS_MAX:g}, not {self.days:g}")
        if self.scenario not in SCENARIOS:
            known = ", ".join(SCENARIOS)
            raise InvalidInput(f"no scenario is called {self.scenario!r}; there are: {known}")
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InvalidInput(
                f"{self.out} is not an empty directory: a simulation makes a new one, so choose"
                " another name"
            )
