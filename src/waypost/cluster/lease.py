"""The lease of a partition, in a key-value bucket of JetStream: decides who tries to take over.

It protects nothing. If two nodes hold it, or none does, the log still has one owner: a wrong lease
costs time and nothing else.
"""

import asyncio
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
_ANSWER_S = 1.5
"""For which an attempt waits: servers that have lost their leader do not answer."""

_FAILURES = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError)


class Lease:
    """One key, with the name of the node that holds it until its time to live has passed."""

    def __init__(self, bucket: KeyValue, key: str, node: str, lease_s: float) -> None:
        self.lease_s = lease_s
        self._bucket = bucket
        self._key = key
        self._node = node
        self._revision = 0
        self._is_known = False
        """Whether the last attempt was answered: otherwise this node may hold it unknowingly."""

    async def hold(self) -> bool:
        """Acquire the lease, or renew it; return whether this node holds it now.

        One that this node has from an earlier life, or from an attempt without an answer, is
        renewed: waiting for its end would only take time.
        """
        content, before = self._node.encode(), self._revision
        self._revision = 0
        try:
            async with asyncio.timeout(_ANSWER_S):
                before = before or await self._own_revision()
                if before:
                    self._revision = await self._bucket.update(self._key, content, before)
                else:
                    self._revision = await self._bucket.create(self._key, content)
            self._is_known = True
        except nats.js.errors.KeyWrongLastSequenceError:
            self._is_known = True
        except _FAILURES as problem:
            if self._is_known:
                log.warning("cluster: the lease of %s is not known: %r", self._key, problem)
            self._is_known = False
        return bool(self._revision)

    async def _own_revision(self) -> int:
        """Return the revision of a lease that this node holds without knowing it, or 0."""
        if self._is_known:
            return 0
        try:
            found = await self._bucket.get(self._key)
        except nats.js.errors.KeyNotFoundError:
            return 0
        return found.revision or 0 if found.value == self._node.encode() else 0

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
