"""The findings of a verification."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """The outcome of a finding."""

    FOUND = "found"
    """An error that can be repaired."""
    REPAIRED = "repaired"
    LOST = "lost"
    """An error that cannot be repaired from the remaining data."""
    NOTED = "noted"
    """Worth knowing, but not or no longer an error."""


class Part(StrEnum):
    """The part of the data directory that a finding concerns."""

    JOURNAL = "journal"
    INDEX = "index"
    MAILBOXES = "mailboxes"


class Finding(msgspec.Struct, frozen=True):
    """One difference from the expected content: its location and a description."""

    part: Part
    where: str
    text: str
    outcome: Outcome


class VerifyReport(msgspec.Struct, frozen=True):
    """The extent and the findings of a verification; `in_use_by` is the pid of a running relay.

    `chained_from` is the first event whose batch names the batch before it, 0 if none does.
    """

    data_dir: str
    in_use_by: str
    segments: int
    events: int
    chained_from: int
    messages: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether there was no error, or every error was repaired."""
        return not any(one.outcome in (Outcome.FOUND, Outcome.LOST) for one in self.findings)
