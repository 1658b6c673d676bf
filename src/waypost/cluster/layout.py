"""The layout of a cluster: what is fixed when it is created."""

from collections.abc import Sequence

import msgspec

from waypost.cluster.shared_values import SharedValues
from waypost.cluster.streams import answered, connect, create_stream, disconnect
from waypost.relay.errors import LogUnusable

LAYOUT_KEY = "layout"


class Layout(msgspec.Struct, frozen=True):
    """What never changes in a cluster."""

    partitions: int
    replicas: int


async def create_cluster(servers: Sequence[str], cluster: str, layout: Layout) -> None:
    """Create a cluster: its bucket, the streams of its partitions, and last its layout.

    One that was begun and not finished is completed. Raises `LogUnusable` if there is one already,
    or if the servers cannot have it.
    """
    client = await connect(servers)
    try:
        await SharedValues.create(client.jetstream(), cluster, layout.replicas)
        values = await SharedValues.open(client.jetstream(), cluster)
        try:
            with answered():
                _require_new(values, cluster)
                for number in range(layout.partitions):
                    await create_stream(client, cluster, number, replicas=layout.replicas)
                if not await values.replace(LAYOUT_KEY, msgspec.json.encode(layout)):
                    _require_new(values, cluster)
        finally:
            await values.close()
    finally:
        await disconnect(client)


def _require_new(values: SharedValues, cluster: str) -> None:
    if values.get(LAYOUT_KEY) is not None:
        found = layout_of(values, cluster)
        raise LogUnusable(
            f"there is a cluster {cluster!r} already, with {found.partitions} partitions: choose"
            " another name"
        )


def layout_of(values: SharedValues, cluster: str) -> Layout:
    """Return the layout of a cluster. Raises `LogUnusable` if its creation was not finished."""
    known = values.get(LAYOUT_KEY)
    if known is None:
        raise LogUnusable(
            f"the creation of the cluster {cluster!r} was not finished: run 'waypost cluster"
            " create' again"
        )
    return msgspec.json.decode(known.value, type=Layout)
