"""Which nodes are alive: each announces itself in the bucket of leases, whose entries expire."""

import nats.js.errors
from nats.aio.client import Client

from waypost.cluster.lease import bucket_name

NODE_PREFIX = "node."


async def announce(client: Client, cluster: str, node: str, address: str) -> None:
    """Report that a node is alive, for as long as a lease."""
    bucket = await client.jetstream().key_value(bucket_name(cluster))
    await bucket.put(NODE_PREFIX + node, address.encode())


async def alive_nodes(client: Client, cluster: str) -> dict[str, str]:
    """Return the addresses of the nodes that are alive, by name; none before the first joined."""
    jetstream, bucket = client.jetstream(), bucket_name(cluster)
    nodes = f"$KV.{bucket}.{NODE_PREFIX}"
    try:
        info = await jetstream.stream_info(f"KV_{bucket}", subjects_filter=f"{nodes}>")
        values = await jetstream.key_value(bucket)
    except nats.js.errors.NotFoundError:
        return {}
    found: dict[str, str] = {}
    for subject in info.state.subjects or {}:
        name = subject.removeprefix(nodes)
        try:
            entry = await values.get(NODE_PREFIX + name)
        except nats.js.errors.KeyNotFoundError:
            continue  # it has expired meanwhile
        found[name] = (entry.value or b"").decode(errors="replace")
    return found
