"""Several partitions with forwarding between them, each on a simulated log, with seeded faults.

python -m tests.cluster.partitions_simulation [--seeds 1000] [--first 0]

Any node may try to take over any partition at any time, every node that has a relay open answers
for its partition, and batches between partitions are lost, unanswered, repeated and late.
"""

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.cluster.limits import COUNT, LIMITED, Message, PartitionsChecker
from tests.cluster.nodes import Node, segments_of
from tests.cluster.simulated_log import Faults, SimulatedLog
from tests.cluster.simulation import main, run_in_memory
from tests.harness.partitions import name_in
from waypost import Envelope, Relay
from waypost.policy.partitions import partition_of
from waypost.relay.errors import LogUnavailable, NotOwner, PartitionUnavailable, RelayStopped
from waypost.relay.relay import Partition
from waypost.testing import ManualClock
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

MACHINES = 2
STEPS = 70
NAMES = [name_in(partition, number) for partition in range(COUNT) for number in range(2)]
_IDLE_TURNS = 12
_RESTS_WITHIN_S = 60


class SimulatedCarrier:
    """Asks every node that has the relay of a partition open; the first answer counts."""

    def __init__(self, choose: random.Random) -> None:
        self.nodes: list[list[Node]] = []
        self.share = choose.choice([0.0, 0.2, 0.5])
        self._choose = choose
        self._copies: list[tuple[int, int, Sequence[Forwarded]]] = []
        self._over = asyncio.Event()
        self._asked: set[asyncio.Task[Sequence[ForwardOutcome] | None]] = set()

    async def carry(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        choose, fault = self._choose, ""
        if choose.random() < self.share:
            fault = choose.choice(["lost", "unanswered", "twice", "late"])
        await asyncio.sleep(0)
        if fault == "lost":
            raise PartitionUnavailable(partition, "lost on the way")
        if fault == "late":
            self._copies.append((origin, partition, messages))
        if fault == "twice":
            self._ask(origin, partition, messages)
        outcomes = await self._first(self._ask(origin, partition, messages))
        if outcomes is None or fault == "unanswered":
            raise PartitionUnavailable(partition, "no answer")
        return outcomes

    def deliver_copies(self) -> None:
        """Have late copies of batches arrive now; nobody waits for their answers."""
        copies, self._copies = self._copies, []
        for copy in copies:
            self._ask(*copy)

    def give_up(self) -> None:
        """End the wait for answers that have not come."""
        self._over.set()
        self._over = asyncio.Event()

    def _ask(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> set[asyncio.Task[Sequence[ForwardOutcome] | None]]:
        relays = [node.relay for node in self.nodes[partition] if node.relay is not None]
        asked = {asyncio.ensure_future(_decide(relay, origin, messages)) for relay in relays}
        self._asked |= asked
        for one in asked:
            one.add_done_callback(self._asked.discard)
        return asked

    async def _first(
        self, asked: set[asyncio.Task[Sequence[ForwardOutcome] | None]]
    ) -> Sequence[ForwardOutcome] | None:
        over = asyncio.ensure_future(self._over.wait())
        try:
            while asked and not over.done():
                done, _ = await asyncio.wait({*asked, over}, return_when=asyncio.FIRST_COMPLETED)
                for one in done & asked:
                    asked.discard(one)
                    if (found := one.result()) is not None:
                        return found
            return None
        finally:
            over.cancel()


async def _decide(
    relay: Relay, origin: int, messages: Sequence[Forwarded]
) -> Sequence[ForwardOutcome] | None:
    try:
        return await relay.decide_forwarded(origin, messages)
    except (RelayStopped, PartitionUnavailable):
        return None


class PartitionsSimulation:
    """One seed: partitions, the nodes that run all of them, and the steps that happen."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.carrier = SimulatedCarrier(self.random)
        self.logs = [SimulatedLog(Faults(self.random)) for _ in range(COUNT)]
        self.clocks = [ManualClock() for _ in range(MACHINES)]
        self.nodes = [
            [
                Node(
                    f"node-{machine}",
                    root / f"partition-{number}",
                    self.logs[number],
                    settings=LIMITED,
                    partition=Partition(number, COUNT, self.carrier),
                    clock=self.clocks[machine],
                )
                for machine in range(MACHINES)
            ]
            for number in range(COUNT)
        ]
        self.carrier.nodes = self.nodes
        self.checker = PartitionsChecker(self.logs, self.nodes)
        self.step = 0
        self._delivered: dict[str, list[Envelope]] = defaultdict(list)
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (40, self._publish),
            (16, self._consume),
            (8, self._take_over),
            (4, self._follow),
            (3, self._pause),
            (7, self._resume),
            (3, self._kill),
            (10, self._pass_time),
            (1, self._jump),
            (2, self._seal),
            (3, self._late),
            (3, self._step_down),
        ]

    async def run(self) -> None:
        """Run all steps, then let everything work again, and judge the end."""
        weights = [weight for weight, _ in self._steps]
        try:
            for nodes in self.nodes:
                await self._own(self.random.choice(nodes))
            for self.step in range(1, STEPS):
                (act,) = self.random.choices([act for _, act in self._steps], weights)
                await act()
                await self._settle()
                self.checker.check()
            await self._heal()
        finally:
            for node in self._all():
                node.connection.cut()
                await self._quietly(node.close())
            self.carrier.give_up()
            await asyncio.gather(*self._tasks)

    async def _heal(self) -> None:
        """End all faults: everything must be decided, and every copy must be the log."""
        self.carrier.share = 0.0
        for log in self.logs:
            log.faults.none()
        for node in self._all():
            await node.resume()
            await self._quietly(node.step_down())
        for number, nodes in enumerate(self.nodes):
            self.logs[number].deliver_late()
            for node in nodes:
                await self._own(node)
                if node is not nodes[-1]:
                    await self._quietly(node.step_down())
        for _ in range(60):
            self._advance(400)
            self.carrier.deliver_copies()
            await self._settle()
            if not self._undecided() and not self._tasks:
                break
        self.checker.check()
        assert not self._undecided(), f"{self._undecided()} messages are never decided"
        assert not self._tasks, "a publish waits for ever"
        for number, nodes in enumerate(self.nodes):
            for node in nodes:
                await self._quietly(node.step_down())
            for node in nodes:
                await node.follow()
                copy = b"".join(segments_of(node.journal).values())
                expected = b"".join(record.lines for record in self.logs[number].records)
                assert copy == expected, f"{node.name} has other segments of {number}"

    def _all(self) -> list[Node]:
        return [node for nodes in self.nodes for node in nodes]

    def _undecided(self) -> int:
        return sum(
            len(outbox.live)
            for node in self._all()
            if node.relay is not None
            for outbox in node.relay._runtime.ledger.state.outboxes.values()
        )

    async def _settle(self) -> None:
        """Give all tasks their turns, until everything that is left waits for a later step."""
        idle, loop = 0, asyncio.get_running_loop()
        until = loop.time() + _RESTS_WITHIN_S  # threads write, and the machine may be busy
        while loop.time() < until:
            await asyncio.sleep(0)
            idle = 0 if any(map(_is_working, self._all())) else idle + 1
            if idle >= _IDLE_TURNS:
                return
        raise AssertionError("the cluster does not come to rest")

    # Steps

    async def _own(self, node: Node) -> None:
        await node.run(self._quietly(self._take_over_with_endpoints(node)))

    async def _take_over_with_endpoints(self, node: Node) -> None:
        number = [node in nodes for nodes in self.nodes].index(True)
        await node.take_over()
        for name in NAMES:
            if node.relay is not None and partition_of(name, COUNT) == number:
                node.relay.register_endpoint(name)

    async def _publish(self) -> None:
        messages = self.checker.messages
        tried = [one for one in messages.values() if one.is_open]
        if tried and self.random.random() < 0.4:
            message = self.random.choice(tried)
        else:
            message = self._new_message()
        owners = [one.relay for one in self._nodes_of(message.sender) if one.relay is not None]
        if owners:
            messages.setdefault(message.id, message)
            message.attempts += 1
            task = asyncio.create_task(self._publish_on(self.random.choice(owners), message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _new_message(self) -> Message:
        sender, subject = self.random.sample(NAMES, 2)
        message = Message(f"m{len(self.checker.messages):04d}", sender, subject, self.step)
        if self._delivered[sender] and self.random.random() < 0.7:
            message.parent = self.random.choice(self._delivered[sender][-3:])
        return message

    async def _publish_on(self, relay: Relay, message: Message) -> None:
        payload = "x" * self.random.choice([10, 5000])
        try:
            result = await relay.publish(
                message.endpoint,
                payload,
                sender=message.sender,
                message_id=message.id,
                parent=message.parent,
            )
        except RelayStopped:
            return
        message.note(result, self.step)

    async def _consume(self) -> None:
        name = self.random.choice(NAMES)
        node = self.random.choice(self._nodes_of(name))
        if node.relay is not None:
            await node.run(self._consume_on(node.relay, name))

    async def _consume_on(self, relay: Relay, name: str) -> None:
        number = partition_of(name, COUNT)
        try:
            found = await relay.lease(name, limit=2)
            ids = [one.id for one in found]
            self.checker.note_lease(number, ids)
            self._delivered[name] += found
            if ids and self.random.random() < 0.8:
                if await relay.ack(name, ids) == len(ids):
                    self.checker.acked.update((number, one) for one in ids)
            elif ids:
                await relay.nack(name, ids)
        except RelayStopped:
            return

    async def _take_over(self) -> None:
        node = self._any()
        if not node.is_busy:
            await self._own(node)

    async def _follow(self) -> None:
        node = self._any()
        if not node.is_busy:
            await node.run(self._quietly(node.follow()))

    async def _pause(self) -> None:
        self._any().connection.pause()

    async def _resume(self) -> None:
        for node in self._all():
            if node.connection.is_paused and self.random.random() < 0.6:
                await node.resume()

    async def _kill(self) -> None:
        """Kill a machine, with its nodes of all partitions."""
        machine = self.random.randrange(MACHINES)
        for nodes in self.nodes:
            if nodes[machine].directory.exists():
                await nodes[machine].die(self.random, lose_files=True)

    async def _pass_time(self) -> None:
        self.carrier.give_up()
        self._advance(self.random.choice([100, 1_000, 11_000]))

    async def _jump(self) -> None:
        self.clocks[self.random.randrange(MACHINES)].now_us += 40_000_000

    async def _seal(self) -> None:
        node = self._any()
        if node.relay is not None:
            await node.run(self._quietly(node.relay.seal_journal()))

    async def _late(self) -> None:
        self.random.choice(self.logs).deliver_late()
        self.carrier.deliver_copies()

    async def _step_down(self) -> None:
        node = self._any()
        if not node.connection.is_paused:
            await self._quietly(node.step_down())

    def _any(self) -> Node:
        return self.random.choice(self._all())

    def _nodes_of(self, subject: str) -> list[Node]:
        return self.nodes[partition_of(subject, COUNT)]

    def _advance(self, milliseconds: int) -> None:
        for clock in self.clocks:
            try:
                clock.advance_ms(milliseconds)
            except RelayStopped:
                pass  # a timer of a relay that is fenced, and not closed yet

    async def _quietly(self, operation: Awaitable[object]) -> None:
        """Run an operation that may fail as operations of a cluster do."""
        try:
            await operation
        except (NotOwner, LogUnavailable, RelayStopped):
            pass


def _is_working(node: Node) -> bool:
    """Return whether a node has something to do that no later step is needed for."""
    if node.connection.waiting.is_set():
        return False
    if node.is_busy:
        return True
    relay = node.relay
    journal = None if relay is None else relay._runtime.journal
    return journal is not None and journal.failure is None and journal.busy


def run_seed(seed: int) -> None:
    """Run one seed in a directory of its own; raise what its checker finds, with the seed."""
    run_in_memory(
        lambda root: PartitionsSimulation(seed, root).run(), "partitions_simulation", seed
    )


if __name__ == "__main__":
    sys.exit(main(run_seed))
