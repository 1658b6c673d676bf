"""The settings of the simulated relay: those of a served one, with smaller mailboxes.

With limits a fraction of the usual ones, each of them is met within a few thousand messages.
"""

import msgspec

from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.settings import HousekeepingConfig, Settings, to_config_document
from waypost.policy.tiers import WEEK_MS, QosConfig, TierLimits

_KIB = 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


def simulated_settings(span_us: int) -> Settings:
    """Settings for a relay that lives through `span_us` of virtual time."""
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
            # Whoever makes a journal wants all of it, however many days it covers.
            journal_retention_ms=WEEK_MS + span_us // 1000 + _DAY_MS,
        ),
    )


def config_file(settings: Settings) -> bytes:
    """The limits as a `config.json`, so that whoever opens the directory later has the same.

    What only made the simulation quick is left out.
    """
    document = to_config_document(settings)
    limits = {name: value for name, value in document.items() if name not in _FOR_SPEED}
    return msgspec.json.format(msgspec.json.encode(limits), indent=2)


_FOR_SPEED = frozenset({"storage", "durability", "watchFiles"})
