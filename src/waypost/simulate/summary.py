"""What a simulation came to."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` are publishes; `accepted` and `rejected` count mailboxes, so that a publish to
    many counts many times. `events` counts what happened to stored messages, by kind.

    `begin` and `end` are on the virtual clock, `seconds` on the real one.
    """

    data_dir: str
    scenario: str
    agents: int
    seed: int
    messages: int
    accepted: int
    rejected: Mapping[str, int]
    events: Mapping[str, int]
    pending: int
    dead: int
    begin: datetime
    end: datetime
    seconds: float
    messages_per_second: float

    @property
    def elapsed(self) -> timedelta:
        """How long it took on the real clock."""
        return timedelta(seconds=self.seconds)
