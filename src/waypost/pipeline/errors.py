"""Errors of pipeline jobs.

PipelineError
├── SparkUnavailable     no Java, a Java that is too old, or no cluster at the address
├── LakeUnusable         not a lake, a newer format, or another job committed first
├── JournalUnusable      no journal, or two with the same relay name
├── BadTrace             an unreadable trace file
└── RelayRejected        a relay rejected messages or a whole request
"""

from waypost.policy.errors import WaypostError


class PipelineError(WaypostError):
    """A job failed; the text gives the cause and a remedy."""


class SparkUnavailable(PipelineError):
    """Spark cannot be started or reached."""


class LakeUnusable(PipelineError):
    """The lake cannot be read or written."""


class JournalUnusable(PipelineError):
    """The journal is missing or cannot be ingested."""


class BadTrace(PipelineError):
    """The trace file cannot be read."""


class RelayRejected(PipelineError):
    """The relay rejected messages or a whole request."""
