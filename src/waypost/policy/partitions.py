"""Partitions: which of several relays a subject belongs to.

Rule 1  The partition of a subject is a hash of its first two tokens, so that the agents of one team
        (`agent.billing.refunds`, `agent.billing.orders`) are together.
Rule 2  The hash is the same in every process and in every version: journals depend on it.
Rule 3  A pattern whose first two tokens are literal matches subjects of one partition; any other
        may match subjects of all.

This module does not know which relay has a partition, nor whether it can be reached.
"""

from functools import lru_cache
from hashlib import blake2b

from waypost.policy.subjects import ONE, REST

_HASHED_TOKENS = 2


@lru_cache(maxsize=16_384)
def partition_of(subject: str, count: int) -> int:
    """Return the partition of a valid `subject`, of `count` partitions numbered from 0."""
    team = ".".join(subject.split(".", _HASHED_TOKENS)[:_HASHED_TOKENS])
    digest = blake2b(team.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def partitions_of(pattern: str, count: int) -> tuple[int, ...]:
    """Return the partitions, ascending, that have subjects which match a valid `pattern`."""
    team = pattern.split(".", _HASHED_TOKENS)[:_HASHED_TOKENS]
    if ONE in team or REST in team:
        return tuple(range(count))
    return (partition_of(pattern, count),)
