"""Takes every file descriptor that a process may still open."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Leave no descriptor to this process for the block; call the result to take freed ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    highest = os.open("/dev/null", os.O_RDONLY)
    taken.append(highest)

    def take_all() -> None:
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        take_all()
        yield take_all
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
