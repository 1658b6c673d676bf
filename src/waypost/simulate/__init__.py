"""Traffic models on a virtual clock, driving the real relay.

`simulate(options)` makes a data directory whose journal holds days of traffic, in seconds. Read
`driver.py` for how time passes, `world.py` for what models act on, `models/` for what agents do.
"""

from waypost.simulate.driver import simulate
from waypost.simulate.options import SimulationOptions
from waypost.simulate.parallel import Several, simulate_several
from waypost.simulate.scenarios import SCENARIOS
from waypost.simulate.summary import Summary

__all__ = [
    "SCENARIOS",
    "Several",
    "SimulationOptions",
    "Summary",
    "simulate",
    "simulate_several",
]
