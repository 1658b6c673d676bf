"""What a failure of Spark says, in one line: its own reports are pages long."""

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

PATH_ERRORS = (PySparkException, Py4JJavaError)
"""What reading an address raises: an unknown scheme, a missing library, a server without answer."""

_CLASS = re.compile(r"^(?:: )?(?:[a-zA-Z_$][\w$]*\.)+[A-Z][\w$]*: ")


def is_missing(problem: Exception) -> bool:
    """Return whether there is nothing at the address."""
    return isinstance(problem, PySparkException) and problem.getCondition() == "PATH_NOT_FOUND"


def has_vanished(problem: Exception) -> bool:
    """Return whether a file was removed after it was listed."""
    # In a task, where it happens to have no condition.
    return "[FAILED_READ_FILE.FILE_NOT_EXIST]" in str(problem)


def cause(problem: Exception) -> str:
    """Return the line that names the problem, without the names of Java's classes."""
    lines = [line.strip() for line in str(problem).splitlines()]
    named = [line for line in lines if _CLASS.match(line)] or [line for line in lines if line]
    text = named[0] if named else type(problem).__name__
    while _CLASS.match(text):
        text = _CLASS.sub("", text, count=1)
    return text[:300]
