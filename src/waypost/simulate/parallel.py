"""Several simulated relays in parallel, each with its own process, seed and share of the messages.

They are independent: the decisions of one depend on its own seed and share only, so each can be
reproduced on its own.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.simulate.driver import OnProgress, Summary, simulate
from waypost.simulate.options import SimulationOptions


class ParallelSummary(msgspec.Struct, kw_only=True):
    """The summaries of all relays; `seconds` is from the first start to the last end."""

    relays: list[Summary]
    messages: int
    seconds: float
    messages_per_second: float


def simulate_parallel(
    options: SimulationOptions, relays: int, on_progress: OnProgress = lambda done, total: None
) -> ParallelSummary:
    """Create the data directories `relay-1` and so on in `options.out`, one per core at a time.

    The first relay has the seed of `options`, each further one the next seed. Calls `on_progress`
    with the number of messages sent and their total, after each relay. Raises as `simulate` does.
    """
    options.check()
    if not 1 <= relays <= options.messages:
        raise InvalidInput(f"relays must be 1 to the number of messages, not {relays}")
    began = time.perf_counter()
    shares = [_share(options, relays, number) for number in range(relays)]
    # Forked children would share the parent's open libraries.
    workers = ProcessPoolExecutor(min(relays, os.cpu_count() or 1), get_context("spawn"))
    with workers:
        running = [workers.submit(simulate, share) for share in shares]
        done = 0
        for one in as_completed(running):
            done += one.result().messages
            on_progress(done, options.messages)
    seconds = time.perf_counter() - began
    return ParallelSummary(
        relays=[one.result() for one in running],
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
