"""The state of a cluster, as a node and the command line report it."""

import msgspec


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is alive, and how many partitions it owns. `problem` says what it reports."""

    name: str
    address: str
    owned: int
    problem: str = ""


class NodeInfo(msgspec.Struct, frozen=True):
    """The answer of a node about itself: the id of its data directory."""

    instance: str


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition: its owner since the beginning of `epoch`, and its stream.

    `owner` is empty while no node owns it; `is_alive` is false if the last one is gone. `position`
    is the end of the stream, `leader` the server that leads it, `replicas_behind` those of its
    copies that are not up to date. `max_bytes` is 0 without a limit. `lag` counts the messages of
    the stream that the node which reports has not copied yet. `problem` says why it cannot be used.
    """

    number: int
    owner: str = ""
    address: str = ""
    epoch: int = 0
    is_alive: bool = False
    position: int = 0
    stored_bytes: int = 0
    max_bytes: int = 0
    lag: int = 0
    leader: str = ""
    replicas: int = 0
    replicas_behind: int = 0
    problem: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes that are alive, and all partitions."""

    cluster: str
    nodes: list[NodeStatus]
    partitions: list[PartitionStatus]

    @property
    def is_well(self) -> bool:
        """Whether every partition has an owner that is alive, all copies are up to date, and no
        node has a problem."""
        return not any(one.problem for one in self.nodes) and all(
            one.is_alive and not one.problem and not one.replicas_behind for one in self.partitions
        )
