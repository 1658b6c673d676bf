"""What can go wrong for whoever starts a job.

PipelineError
├── SparkUnavailable     no Java, too old a Java, no cluster at that address
├── LakeUnusable         not a lake, a newer format, or changed by somebody else meanwhile
├── JournalUnusable      no journal there, or two that cannot be told apart
├── BadTrace             a trace file that cannot be read
└── RelayRejected         a relay did not take what was written to it
"""

from waypost.policy.errors import WaypostError


class PipelineError(WaypostError):
    """A job cannot be done; the text says why and what to do."""


class SparkUnavailable(PipelineError):
    """Spark cannot be started or reached."""


class LakeUnusable(PipelineError):
    """The lake cannot be read or written as asked."""


class JournalUnusable(PipelineError):
    """There is no journal to read, or it cannot be taken in."""


class BadTrace(PipelineError):
    """A trace file does not say what happened."""


class RelayRejected(PipelineError):
    """The relay did not take some messages, or a whole request."""
