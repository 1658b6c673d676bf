"""A batch on its way into the journal: what will be written together, and who waits for it."""

import asyncio
from collections.abc import Callable

from waypost.policy.bounds import batch_max_bytes, batch_max_events
from waypost.relay.journal.writer import Job
from waypost.relay.state.index import Position


class Batch:
    """Lines and bodies. `seq` is the number of the last event before it, `last_seq` that of the
    last one it has room for; `room` is how many bytes of lines fill it: the fewer, the more there
    is in bodies."""

    __slots__ = (
        *("after", "bodies", "job", "last_seq", "lines"),
        *("position", "room", "seq", "waiters"),
    )

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.last_seq = seq + batch_max_events
        self.room = batch_max_bytes
        self.lines = bytearray()
        self.bodies: list[bytes] = []
        self.after: list[Callable[[], None]] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.job: Job | None = None
        self.position = Position()
