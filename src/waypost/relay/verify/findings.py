"""What looking a data directory over turns up."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """What became of something that was found."""

    FOUND = "found"
    """Wrong, and it can be repaired."""
    REPAIRED = "repaired"
    LOST = "lost"
    """Wrong, and nothing that is left can put it right."""
    NOTED = "noted"
    """Worth knowing, no longer or not at all a problem."""


class Part(StrEnum):
    """What a finding is about."""

    JOURNAL = "journal"
    INDEX = "index"
    MAILBOXES = "mailboxes"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be: where, and what in words."""

    part: Part
    where: str
    text: str
    outcome: Outcome


class VerifyReport(msgspec.Struct, frozen=True):
    """What was looked at and what was found. `in_use_by` is the pid of a running relay, if any."""

    data_dir: str
    in_use_by: str
    segments: int
    events: int
    messages: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Nothing is wrong, or everything that was wrong is repaired."""
        return not any(one.outcome in (Outcome.FOUND, Outcome.LOST) for one in self.findings)
