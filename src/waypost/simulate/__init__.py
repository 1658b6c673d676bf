"""Traffic models on a virtual clock, driving the real relay.

`simulate(options)` creates a data directory whose journal holds days of traffic, in seconds. Read
`driver.py` for how time passes, `world.py` for what models act on, `models/` for what agents do.
"""

from waypost.simulate.driver import Summary, simulate
from waypost.simulate.options import SCENARIOS, SimulationOptions
from waypost.simulate.parallel import ParallelSummary, simulate_parallel

__all__ = [
    "SCENARIOS",
    "ParallelSummary",
    "SimulationOptions",
    "Summary",
    "simulate",
    "simulate_parallel",
]
