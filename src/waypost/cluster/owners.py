"""Who owns which partition, as the nodes let each other know through the shared values.

It is for finding an owner, not for being one: only the log of a partition decides that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from waypost.cluster.shared_values import SharedValues

log = logging.getLogger("waypost.cluster")

OWNER_PREFIX = "owner."
MOVE_PREFIX = "move."
WITHDRAW_S = 1.0


class Owner(msgspec.Struct, frozen=True):
    """The node that serves a partition, since the beginning of an epoch."""

    node: str
    address: str
    epoch: int


def owner_of(values: SharedValues, partition: int) -> Owner | None:
    """Return the owner of a partition as far as this node knows; None if there is none."""
    known = values.get(f"{OWNER_PREFIX}{partition}")
    if known is None:
        return None
    owner = msgspec.json.decode(known.value, type=Owner)
    return owner if owner.node else None


@asynccontextmanager
async def announced(values: SharedValues, partition: int, owner: Owner) -> AsyncIterator[None]:
    """Let the other nodes know the owner of a partition, until the block ends."""
    key = f"{OWNER_PREFIX}{partition}"
    await values.put(key, msgspec.json.encode(owner))
    try:
        yield
    finally:
        known = values.get(key)
        if known is not None and owner_of(values, partition) == owner:
            nobody = msgspec.json.encode(Owner("", "", owner.epoch))
            try:
                async with asyncio.timeout(WITHDRAW_S):
                    await values.replace(key, nobody, known.revision)
            except Exception as problem:  # the next owner replaces it
                log.info("partition %d: its owner is not withdrawn: %s", partition, problem)


def wish_of(values: SharedValues, partition: int) -> str:
    """Return the node that the operator wants to own a partition; "" if there is no wish."""
    wish = values.get(f"{MOVE_PREFIX}{partition}")
    return "" if wish is None else wish.value.decode(errors="replace")


async def move(values: SharedValues, partition: int, node: str) -> None:
    """Ask for a partition to be owned by `node`; "" leaves it to the nodes."""
    await values.put(f"{MOVE_PREFIX}{partition}", node.encode())
