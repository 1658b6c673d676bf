"""The lease of a partition, in a key-value bucket of JetStream: decides who tries to take over.

It protects nothing. If two nodes hold it, or none does, the log still has one owner: a wrong lease
costs time and nothing else.
"""

import logging

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType
from nats.js.kv import KeyValue

from waypost.cluster.streams import REPLICAS, stream_name
from waypost.relay.errors import LogUnavailable

log = logging.getLogger("waypost.cluster")

LEASE_S = 6.0

_FAILURES = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError)


class Lease:
    """One key, with the name of the node that holds it until its time to live has passed."""

    def __init__(self, bucket: KeyValue, key: str, node: str, lease_s: float) -> None:
        self.lease_s = lease_s
        self._bucket = bucket
        self._key = key
        self._node = node
        self._revision = 0

    async def hold(self) -> bool:
        """Acquire the lease, or renew it; return whether this node holds it now."""
        content = self._node.encode()
        try:
            if self._revision:
                self._revision = await self._bucket.update(self._key, content, self._revision)
            else:
                self._revision = await self._bucket.create(self._key, content)
        except nats.js.errors.KeyWrongLastSequenceError:
            self._revision = 0
        except _FAILURES as problem:
            self._revision = 0
            log.warning("cluster: the lease of %s is not known: %s", self._key, problem)
        return bool(self._revision)

    async def release(self) -> None:
        """Let another node acquire the lease at once."""
        revision, self._revision = self._revision, 0
        if revision:
            try:
                await self._bucket.delete(self._key, last=revision)
            except _FAILURES:
                pass  # it ends by itself


async def open_lease(
    client: Client,
    cluster: str,
    partition: int,
    node: str,
    *,
    lease_s: float = LEASE_S,
    replicas: int = REPLICAS,
) -> Lease:
    """Return a partition's lease, in the bucket of all leases of the cluster."""
    name = stream_name(cluster, partition)
    jetstream = client.jetstream()
    try:
        bucket = await jetstream.create_key_value(
            KeyValueConfig(
                bucket=bucket_name(cluster),
                ttl=lease_s,
                storage=StorageType.MEMORY,
                replicas=replicas,
            )
        )
    except nats.js.errors.BadRequestError:  # it exists, with another duration
        bucket = await jetstream.key_value(bucket_name(cluster))
    except _FAILURES as problem:
        raise LogUnavailable(f"the leases of {cluster} cannot be opened: {problem}") from None
    return Lease(bucket, name, node, lease_s)


def bucket_name(cluster: str) -> str:
    """Return the name of the bucket with the leases of a cluster."""
    return f"waypost-{cluster}-leases"
