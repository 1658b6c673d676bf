"""The state of a cluster, from what its nodes and servers report."""

from collections import Counter

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from waypost.cluster.announcements import Announcement, announcements
from waypost.cluster.owners import Owner, owner_of
from waypost.cluster.shared_values import SharedValues
from waypost.cluster.streams import stream_name
from waypost.wire.cluster_bodies import ClusterStatus, NodeStatus, PartitionStatus


async def cluster_status(
    client: Client, cluster: str, values: SharedValues, partitions: int
) -> ClusterStatus:
    """Return the nodes that are alive, and every partition with its owner and its stream."""
    alive = await announcements(client, cluster)
    owners = [owner_of(values, number) for number in range(partitions)]
    owned = Counter(one.node for one in owners if one is not None)
    return ClusterStatus(
        cluster=cluster,
        nodes=[
            NodeStatus(name=name, address=one.address, owned=owned[name], problem=one.problem)
            for name, one in sorted(alive.items())
        ],
        partitions=[
            await _partition(client, cluster, number, owner, alive)
            for number, owner in enumerate(owners)
        ],
    )


async def _partition(
    client: Client, cluster: str, number: int, owner: Owner | None, alive: dict[str, Announcement]
) -> PartitionStatus:
    known = PartitionStatus(
        number=number,
        owner="" if owner is None else owner.node,
        address="" if owner is None else owner.address,
        epoch=0 if owner is None else owner.epoch,
        is_alive=owner is not None and owner.node in alive,
    )
    try:
        info = await client.jetstream().stream_info(stream_name(cluster, number))
    except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as problem:
        return msgspec.structs.replace(known, problem=f"its stream cannot be read: {problem}")
    copies = info.cluster.replicas or [] if info.cluster is not None else []
    behind = sum(1 for copy in copies if not copy.current or copy.offline)
    return msgspec.structs.replace(
        known,
        position=info.state.last_seq,
        stored_bytes=info.state.bytes,
        max_bytes=max(0, info.config.max_bytes or 0),
        leader=(info.cluster.leader or "") if info.cluster is not None else "",
        replicas=len(copies) + 1,
        replicas_behind=behind,
    )
