"""What a model is to the driver."""

from collections.abc import Callable
from typing import NamedTuple

from waypost.simulate.agents import Agent
from waypost.simulate.world import Portion, World


class Cast(NamedTuple):
    """Who takes part: the world, its crowd of ordinary agents, and how many groups of its own a
    model may hire."""

    world: World
    crowd: list[Agent]
    groups: int

    def some(self, portion: Portion, wanted: int) -> list[Agent]:
        """Up to `wanted` of the crowd, no one twice."""
        return portion.random.sample(self.crowd, min(wanted, len(self.crowd)))

    def anyone(self, portion: Portion) -> Agent:
        """One of the crowd."""
        return self.crowd[int(portion.random.random() * len(self.crowd))]


class Model(NamedTuple):
    """`act` begins the model's processes. It hires one group of `group_size` agents for every
    `one_in` agents of the simulation, and at least one group."""

    act: Callable[[Cast, Portion], None]
    group_size: int = 0
    one_in: int = 100

    def groups(self, agents: int) -> int:
        """How many groups there are among so many agents."""
        return max(1, agents // self.one_in)

    def hired(self, agents: int) -> int:
        """How many agents are the model's own."""
        return self.groups(agents) * self.group_size
