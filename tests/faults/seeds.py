"""Chance that can be had again: a failure says which seed it came from."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def seeded() -> Iterator[random.Random]:
    """A random source, new in every run unless WAYPOST_SEED is set."""
    seed = int(os.environ.get("WAYPOST_SEED", random.SystemRandom().randrange(2**32)))
    try:
        yield random.Random(seed)
    except BaseException as problem:
        problem.add_note(f"set WAYPOST_SEED={seed} to have the same choices again")
        raise
