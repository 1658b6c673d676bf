"""Several relays side by side: each has a process, a seed and a share of the messages of its own.

They know nothing of each other: what happens at one does not depend on how many there are but for
its share, and each could be made again alone.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.simulate.driver import OnProgress, simulate
from waypost.simulate.options import SimulationOptions
from waypost.simulate.summary import Summary


class Several(msgspec.Struct, kw_only=True):
    """What came of it; `seconds` is from the first beginning to the last end."""

    relays: list[Summary]
    messages: int
    seconds: float
    messages_per_second: float


def simulate_several(
    options: SimulationOptions, relays: int, on_progress: OnProgress = lambda done, total: None
) -> Several:
    """Make `relay-1` and so on in `options.out` data directories; as many at a time as cores.

    The first has the seed of `options`, the next one more, and so on. `on_progress` hears how many
    messages of how many were sent, whenever a relay is done. Raises as `simulate` does.
    """
    options.check()
    if not 1 <= relays <= options.messages:
        raise InvalidInput(f"relays must be 1 to the number of messages, not {relays}")
    began = time.perf_counter()
    shares = [_share(options, relays, number) for number in range(relays)]
    # Forked children would share what libraries of the parent have open.
    workers = ProcessPoolExecutor(min(relays, os.cpu_count() or 1), get_context("spawn"))
    with workers:
        at_work = [workers.submit(simulate, share) for share in shares]
        done = 0
        for one in as_completed(at_work):
            done += one.result().messages
            on_progress(done, options.messages)
    seconds = time.perf_counter() - began
    return Several(
        relays=[one.result() for one in at_work],
        messages=done,
        seconds=seconds,
        messages_per_second=done / seconds,
    )


def _share(options: SimulationOptions, relays: int, number: int) -> SimulationOptions:
    before, after = (options.messages * at // relays for at in (number, number + 1))
    return msgspec.structs.replace(
        options,
        messages=after - before,
        out=options.out / f"relay-{number + 1}",
        seed=options.seed + number,
    )
