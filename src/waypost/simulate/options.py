"""The options of a simulation: scenarios, limits checked up front, and the relay's settings.

The simulated relay has the settings of a served one, with smaller mailboxes: at a fraction of the
usual limits, each limit is reached within a few thousand messages.
"""

import math
from pathlib import Path
from typing import Final

import msgspec

from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.errors import InvalidInput
from waypost.policy.settings import HousekeepingConfig, Settings, to_config_document
from waypost.policy.tiers import WEEK_MS, QosConfig, TierLimits

AGENTS_MIN = 24
"""Every model has a few agents of its own; enough ordinary agents must remain."""

DAYS_MIN, DAYS_MAX = 0.25, 366.0

START_US = 1_767_225_600_000_000
"""2026-01-01 00:00 UTC. Fixed, so that the same arguments give the same journal."""

_KIB = 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

MIXED: Final = "mixed"

_SHARES: Final = {
    "conversations": 0.56,
    "flood": 0.22,
    "slow-consumer": 0.10,
    "loops": 0.04,
    "absences": 0.04,
    "crashes": 0.02,
    "broadcasts": 0.01,
    "overflow": 0.01,
}

SCENARIOS: Final[dict[str, dict[str, float]]] = {
    MIXED: _SHARES,
    **{name: {name: 1.0} for name in _SHARES},
}
"""The share of the messages per model, by scenario. The shares of a scenario add up to 1."""

_SPEED_KEYS = frozenset({"storage", "durability", "watchFiles"})


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` counts publishes, including rejected ones; `out` becomes a data directory.

    The messages are spread over `days` of virtual time, from `start_us` (µs since the epoch).
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
        """The virtual time covered by the traffic, in µs."""
        return int(self.days * 86_400_000_000)

    def check(self) -> None:
        """Raise `InvalidInput` for options that cannot be simulated."""
        if self.messages < 1:
            raise InvalidInput(f"messages must be 1 or more, not {self.messages}")
        if self.agents < AGENTS_MIN:
            raise InvalidInput(f"agents must be {AGENTS_MIN} or more, not {self.agents}")
        if not math.isfinite(self.days) or not DAYS_MIN <= self.days <= DAYS_MAX:
            raise InvalidInput(f"days must be {DAYS_MIN:g} to {DAYS_MAX:g}, not {self.days:g}")
        if self.scenario not in SCENARIOS:
            known = ", ".join(SCENARIOS)
            raise InvalidInput(f"unknown scenario {self.scenario!r}; choose one of: {known}")
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InvalidInput(
                f"{self.out} is not an empty directory: name a new or an empty one with --out"
            )


def quota_sizes(scenario: str, messages: int) -> dict[str, int]:
    """Return the number of messages for each model of `scenario`; they add up to `messages`."""
    shares = SCENARIOS[scenario]
    sizes = {name: int(messages * share) for name, share in shares.items()}
    first = next(iter(sizes))
    sizes[first] += messages - sum(sizes.values())
    return sizes


def simulated_settings(span_us: int) -> Settings:
    """Return the settings of a relay that runs for `span_us` of virtual time."""
    return Settings(
        storage="journal",
        durability="async",
        default_ttl_ms=WEEK_MS,
        max_payload_bytes=64 * _KIB,
        watch_files=False,
        backpressure=BackpressureConfig(max_mailbox_size=150),
        qos=QosConfig(
            enabled=True,
            tier1=TierLimits(20, 32 * _KIB),
            tier2=TierLimits(60, 64 * _KIB),
            tier3=TierLimits(120, 96 * _KIB),
            inbox_max_bytes=128 * _KIB,
        ),
        housekeeping=HousekeepingConfig(
            sweep_interval_ms=5 * 60_000,
            segment_max_age_ms=6 * _HOUR_MS,
            # Keep the whole journal, however many days it covers.
            journal_retention_ms=WEEK_MS + span_us // 1000 + _DAY_MS,
        ),
    )


def config_file(settings: Settings) -> bytes:
    """Return the limits as a `config.json`, so that a relay started there later has the same.

    Settings that only speed up the simulation are left out.
    """
    document = to_config_document(settings)
    limits = {name: value for name, value in document.items() if name not in _SPEED_KEYS}
    return msgspec.json.format(msgspec.json.encode(limits), indent=2)
