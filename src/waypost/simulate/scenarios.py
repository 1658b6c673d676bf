"""The scenarios: which models take part, and what share of the messages each of them sends."""

from typing import Final

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
"""Shares by model, by scenario; those of one scenario add up to 1."""


def portions(scenario: str, messages: int) -> dict[str, int]:
    """How many of `messages` each model of `scenario` sends; they add up exactly."""
    shares = SCENARIOS[scenario]
    sizes = {name: int(messages * share) for name, share in shares.items()}
    first = next(iter(sizes))
    sizes[first] += messages - sum(sizes.values())
    return sizes
