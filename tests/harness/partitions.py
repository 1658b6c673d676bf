"""Several relays in one process that share all subjects, and a carrier that loses messages."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random

from waypost import Relay, Settings
from waypost.policy.partitions import partition_of
from waypost.relay.errors import PartitionUnavailable, RelayStopped
from waypost.relay.relay import Partition
from waypost.testing import ManualClock
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

COUNT = 3


def name_in(partition: int, number: int = 0, of: int = COUNT) -> str:
    """Return a subject of a partition; another one for each `number`."""
    names = (f"agent.team{index}.worker" for index in count())
    found = (name for name in names if partition_of(name, of) == partition)
    return [name for name, _ in zip(found, range(number + 1), strict=False)][number]


class LocalCarrier:
    """Carries messages within one process; tests cut links and lose answers.

    `fault(origin, partition)` names what happens to one batch: "" (nothing), "lost" (it does not
    arrive), "unanswered" (its answer is lost), "twice" (it arrives twice), "late" (it arrives, and
    its copy again with a later batch).
    """

    def __init__(self) -> None:
        self.relays: dict[int, Relay] = {}
        self.fault: Callable[[int, int], str] = lambda origin, partition: ""
        self.carried = 0
        self.copies: list[tuple[int, int, Sequence[Forwarded]]] = []

    async def carry(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        fault = self.fault(origin, partition)
        await asyncio.sleep(0)
        if fault == "lost":
            raise PartitionUnavailable(partition, "lost on the way")
        if fault == "late":
            self.copies.append((origin, partition, messages))
        if fault == "twice":
            both = [self._arrive(origin, partition, messages) for _ in range(2)]
            outcomes, again = await asyncio.gather(*both)
            assert outcomes == again
        else:
            outcomes = await self._arrive(origin, partition, messages)
        if fault == "unanswered":
            raise PartitionUnavailable(partition, "its answer is lost")
        return outcomes

    async def deliver_copies(self) -> None:
        """Have late copies of batches arrive now."""
        copies, self.copies = self.copies, []
        for origin, partition, messages in copies:
            try:
                await self._arrive(origin, partition, messages)
            except PartitionUnavailable:
                self.copies.append((origin, partition, messages))

    async def _arrive(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        relay = self.relays.get(partition)
        if relay is None:
            raise PartitionUnavailable(partition, "its relay is down")
        self.carried += len(messages)
        try:
            return await relay.decide_forwarded(origin, messages)
        except RelayStopped as stopped:
            raise PartitionUnavailable(partition, str(stopped)) from stopped


class Cluster:
    """`COUNT` relays on one clock, each on a directory of its own."""

    def __init__(self, root: Path, clock: ManualClock, settings: Settings) -> None:
        self.root = root
        self.clock = clock
        self.settings = settings
        self.carrier = LocalCarrier()
        self.directories = [root / f"partition-{number}" for number in range(COUNT)]
        self._crashes = count(1)

    def relay(self, subject: str) -> Relay:
        """Return the open relay of a subject."""
        return self.carrier.relays[partition_of(subject, COUNT)]

    async def open(self, number: int) -> Relay:
        """Open the relay of a partition."""
        relay = Relay(
            self.directories[number],
            settings=self.settings,
            clock=self.clock,
            partition=Partition(number, COUNT, self.carrier),
        )
        self.carrier.relays[number] = await relay.open()
        return relay

    async def close(self, number: int) -> None:
        """Close the relay of a partition."""
        relay = self.carrier.relays.pop(number, None)
        if relay is not None:
            await relay.close()

    async def crash(self, number: int) -> None:
        """End the relay of a partition as a crash would: what is not in its journal is lost."""
        relay = self.carrier.relays.pop(number, None)
        if relay is None:
            return
        before = self.directories[number]
        after = self.root / f"partition-{number}-{next(self._crashes)}"
        after.mkdir(mode=0o700)
        shutil.copytree(before / "journal", after / "journal")
        self.directories[number] = after
        await relay.close()

    async def crash_and_open(self, number: int) -> Relay:
        """Crash the relay of a partition, and open it again."""
        await self.crash(number)
        return await self.open(number)

    async def pass_time(self, milliseconds: int, step_ms: int = 100) -> None:
        """Advance the clock in steps, and let all tasks run in between."""
        for _ in range(0, milliseconds, step_ms):
            self.clock.advance_ms(step_ms)
            await turns()

    def undecided(self) -> int:
        """Return how many messages are in outboxes."""
        return sum(
            len(outbox.live)
            for relay in self.carrier.relays.values()
            for outbox in relay._runtime.ledger.state.outboxes.values()
        )


async def turns(count: int = 30) -> None:
    """Give other tasks many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def cluster_of_three(root: Path, **fields: object) -> AsyncIterator[Cluster]:
    """Open three relays; `fields` are settings."""
    fields = {"watch_files": False, "durability": "async", "storage": "journal", **fields}
    cluster = Cluster(root, ManualClock(), Settings(**fields))  # type: ignore[arg-type]
    for number in range(COUNT):
        await cluster.open(number)
    try:
        yield cluster
    finally:
        for number in range(COUNT):
            await cluster.close(number)


def random_faults(random: Random, share: float) -> Callable[[int, int], str]:
    """Return a `fault` for a carrier that does something else than carry in a `share` of cases."""

    def fault(origin: int, partition: int) -> str:
        if random.random() >= share:
            return ""
        return random.choice(["lost", "unanswered", "twice", "late"])

    return fault
