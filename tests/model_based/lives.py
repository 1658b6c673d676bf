"""Runs with other storage and other retention."""

from tests.model_based.life import Life
from waypost.policy.settings import HousekeepingConfig


class LifeInFiles(Life):
    """A run with Maildir files."""

    storage = "maildir"


class ForgetfulLife(Life):
    """A run whose journal segments are deleted as soon as no message needs them."""

    keep = HousekeepingConfig(
        segment_max_bytes=4_096,
        segment_max_age_ms=5_000,
        journal_retention_ms=12_000,
        duplicate_window_ms=15_000,
    )
