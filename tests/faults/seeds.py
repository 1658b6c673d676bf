"""Reproducible randomness: a failure reports its seed."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def seeded() -> Iterator[random.Random]:
    """Return a random source, different in every run unless WAYPOST_SEED is set."""
    seed = int(os.environ.get("WAYPOST_SEED", random.SystemRandom().randrange(2**32)))
    try:
        yield random.Random(seed)
    except BaseException as problem:
        problem.add_note(f"set WAYPOST_SEED={seed} to have the same choices again")
        raise
