"""Which nodes are alive: each announces itself in the bucket of leases, whose entries expire.

Rule 1  A name is announced by one data directory at a time. A second node of the same name is
        rejected; the first one stays.
"""

import asyncio

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from waypost.cluster.lease import bucket_name
from waypost.relay.errors import LogUnusable

NODE_PREFIX = "node."
WITHDRAW_S = 1.0


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that is alive: its address, its data directory's id, and what is wrong with it."""

    address: str
    instance: str = ""
    problem: str = ""


async def announce(client: Client, cluster: str, node: str, content: Announcement) -> None:
    """Report that a node is alive, for as long as a lease.

    Raises `LogUnusable` if a node of the same name with another directory is.
    """
    bucket = await client.jetstream().key_value(bucket_name(cluster))
    key, encoded = NODE_PREFIX + node, msgspec.json.encode(content)
    try:
        known = await bucket.get(key)
    except nats.js.errors.KeyNotFoundError:
        try:
            await bucket.create(key, encoded)
            return
        except nats.js.errors.KeyWrongLastSequenceError:
            known = await bucket.get(key)
    other = _decode(known.value)
    if other.instance and other.instance != content.instance:
        raise LogUnusable(
            f"a node {node!r} is alive already, at {other.address}, with another data directory:"
            " stop it, or give this node another --node"
        )
    await bucket.put(key, encoded)


async def withdraw(client: Client, cluster: str, node: str) -> None:
    """Report that a node stops; without an answer, its announcement expires."""
    try:
        async with asyncio.timeout(WITHDRAW_S):
            bucket = await client.jetstream().key_value(bucket_name(cluster))
            await bucket.delete(NODE_PREFIX + node)
    except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
        pass


async def announcements(client: Client, cluster: str) -> dict[str, Announcement]:
    """Return what the nodes that are alive announce, by name; nothing before the first joined."""
    jetstream, bucket = client.jetstream(), bucket_name(cluster)
    nodes = f"$KV.{bucket}.{NODE_PREFIX}"
    try:
        info = await jetstream.stream_info(f"KV_{bucket}", subjects_filter=f"{nodes}>")
        values = await jetstream.key_value(bucket)
    except nats.js.errors.NotFoundError:
        return {}
    found: dict[str, Announcement] = {}
    for subject in info.state.subjects or {}:
        name = subject.removeprefix(nodes)
        try:
            entry = await values.get(NODE_PREFIX + name)
        except nats.js.errors.KeyNotFoundError:
            continue  # it has expired meanwhile
        found[name] = _decode(entry.value)
    return found


async def alive_nodes(client: Client, cluster: str) -> dict[str, str]:
    """Return the addresses of the nodes that are alive, by name."""
    found = await announcements(client, cluster)
    return {name: one.address for name, one in found.items()}


def _decode(value: bytes | None) -> Announcement:
    try:
        return msgspec.json.decode(value or b"", type=Announcement)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Announcement("")
