"""The interface between the driver and a model."""

from collections.abc import Callable
from typing import NamedTuple

from waypost.simulate.agents import Agent
from waypost.simulate.world import Quota, World


class Actors(NamedTuple):
    """The world, its ordinary agents, and how many groups of agents a model may create."""

    world: World
    agents: list[Agent]
    groups: int

    def sample(self, quota: Quota, wanted: int) -> list[Agent]:
        """Return up to `wanted` different ordinary agents."""
        return quota.random.sample(self.agents, min(wanted, len(self.agents)))

    def pick(self, quota: Quota) -> Agent:
        """Return one of the ordinary agents."""
        return self.agents[int(quota.random.random() * len(self.agents))]


class Model(NamedTuple):
    """`start` starts the model's processes.

    A model creates one group of `group_size` agents for every `one_in` agents of the simulation,
    and at least one group.
    """

    start: Callable[[Actors, Quota], None]
    group_size: int = 0
    one_in: int = 100

    def groups(self, agents: int) -> int:
        """Return the number of groups in a simulation of `agents` agents."""
        return max(1, agents // self.one_in)

    def own_agents(self, agents: int) -> int:
        """Return the number of agents that the model creates itself."""
        return self.groups(agents) * self.group_size
