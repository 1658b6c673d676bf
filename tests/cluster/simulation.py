"""Several nodes on one simulated log, with seeded faults, judged after every step.

python -m tests.cluster.simulation [--seeds 10000] [--first 0] runs many seeds, each in a fraction
of a second, and prints those that fail.

Any node may try to take over at any time: that is what a wrong lease, a jump of a clock or a long
pause amount to.
"""

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from tests.cluster.checker import Checker, Publish
from tests.cluster.nodes import Node
from tests.cluster.simulated_log import Faults, SimulatedLog
from waypost import Relay
from waypost.relay.errors import LogLost, LogUnavailable, NotOwner, RelayStopped

NODES = 3
STEPS = 60
ENDPOINTS = ("team.a", "team.b")
SHARED_MEMORY = Path("/dev/shm")


class Simulation:
    """One seed: a world of nodes, and the steps that happen to it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.log = SimulatedLog(Faults(self.random))
        self.nodes = [Node(f"node-{one}", root, self.log) for one in range(NODES)]
        self.checker = Checker(self.log, self.nodes)
        self.step = 0
        # A message that both the log and the disks lose is lost: one of them has to keep it.
        self._forgets = self.random.random() < 0.25
        self._steps: list[tuple[int, Callable[[Node], Awaitable[None]]]] = [
            (30, self._publish),
            (12, self._consume),
            (10, self._take_over),
            (8, self._follow),
            (4, self._pause),
            (8, self._resume),
            (4, self._kill),
            (3, self._jump),
            (3, self._seal),
            (2, self._late),
            (4, self._step_down),
            (4 if self._forgets else 0, self._forget),
        ]

    async def run(self) -> None:
        """Run all steps, then let everything work again, and judge the end."""
        weights = [weight for weight, _ in self._steps]
        try:
            await self._take_over(self.nodes[0])
            for self.step in range(1, STEPS):
                (act,) = self.random.choices([act for _, act in self._steps], weights)
                await act(self.random.choice(self.nodes))
                self.checker.check()
            await self._heal()
        finally:
            for node in self.nodes:
                node.connection.cut()
                await self._quietly(node.close())

    async def _heal(self) -> None:
        """End all faults; every node must agree, and some node must be able to own."""
        self.log.faults.none()
        for node in self.nodes:
            await node.resume()
            await node.step_down()
        self.log.deliver_late()
        for _ in range(2):  # whoever has batches that the log lacks appends them
            for node in self.nodes:
                await self._quietly(node.take_over())
                self.checker.check()
                await node.step_down()
        for node in self.nodes:
            await node.follow()
        self.checker.check_copies()
        reported = [path for node in self.nodes if node.follower for path in node.follower.lost]
        unreported = [
            one
            for one in self.checker.lost()
            if not any(one.encode() in path.read_bytes() for path in reported)
        ]
        assert not unreported, f"{unreported} are lost, and no node has reported it"

    # Steps

    async def _publish(self, node: Node) -> None:
        relay = node.relay
        if relay is None:
            return
        publishes = self.checker.publishes
        tried = [one for one in publishes.values() if one.returned is None]
        if tried and self.random.random() < 0.6:
            publish = self.random.choice(tried)
        else:
            message_id = f"message-{len(publishes):04d}"
            publish = Publish(message_id, self.random.choice(ENDPOINTS), self.step)
            publishes[message_id] = publish
        await node.run(self._publish_on(relay, publish))

    async def _publish_on(self, relay: Relay, publish: Publish) -> None:
        payload = "x" * self.random.choice([10, 100, 5000])
        try:
            relay.register_endpoint(publish.endpoint)
            result = await relay.publish(
                publish.endpoint, payload, sender="team.sender", message_id=publish.id
            )
        except RelayStopped:
            return
        assert result.delivered_to == 1, result
        publish.returned = self.step

    async def _consume(self, node: Node) -> None:
        if node.relay is not None:
            await node.run(self._consume_on(node.relay, self.random.choice(ENDPOINTS)))

    async def _consume_on(self, relay: Relay, endpoint: str) -> None:
        try:
            relay.register_endpoint(endpoint)
            ids = [one.id for one in await relay.lease(endpoint, limit=2)]
            self.checker.note_lease(ids)
            if ids and self.random.random() < 0.7:
                if await relay.ack(endpoint, ids) == len(ids):  # none of them has expired
                    self.checker.acked.update(ids)
            elif ids and self.random.random() < 0.5:
                await relay.nack(endpoint, ids)
        except RelayStopped:
            return

    async def _take_over(self, node: Node) -> None:
        if not node.is_busy:
            await node.run(self._quietly(node.take_over()))

    async def _follow(self, node: Node) -> None:
        if not node.is_busy:
            await node.run(self._quietly(node.follow()))

    async def _pause(self, node: Node) -> None:
        node.connection.pause()

    async def _resume(self, node: Node) -> None:
        if node.connection.is_paused:
            await node.resume()

    async def _kill(self, node: Node) -> None:
        if node.directory.exists():
            await node.die(self.random, lose_files=not self._forgets)

    async def _jump(self, node: Node) -> None:
        try:
            node.clock.advance_ms(self.random.choice([10, 40_000, 3_600_000]))
        except RelayStopped:
            pass  # a timer of a relay that is fenced, and not closed yet

    async def _seal(self, node: Node) -> None:
        if node.relay is not None:
            await node.run(self._quietly(node.relay.seal_journal()))

    async def _late(self, node: Node) -> None:
        self.log.deliver_late()

    async def _step_down(self, node: Node) -> None:
        if not node.connection.is_paused:
            await self._quietly(node.step_down())

    async def _forget(self, node: Node) -> None:
        # Sequences are used again then, so an owner that runs on is not fenced by them.
        if not any(one.relay is not None or one.is_busy for one in self.nodes):
            self.log.forget(self.random.randrange(1, 4))

    async def _quietly(self, operation: Awaitable[object]) -> None:
        """Run an operation that may fail as operations of a cluster do."""
        try:
            await operation
        except (NotOwner, LogUnavailable, LogLost, RelayStopped):
            pass


def run_in_memory(
    simulate: Callable[[Path], Coroutine[object, object, None]], module: str, seed: int
) -> None:
    """Run a simulation in a directory of its own; raise what it raises, with the seed."""
    where = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="waypost-cluster-") as root:
        try:
            asyncio.run(simulate(Path(root)))
        except BaseException as problem:
            problem.add_note(f"python -m tests.cluster.{module} --first {seed} --seeds 1")
            raise


def run_seed(seed: int) -> None:
    """Run one seed; raise what its checker finds."""
    run_in_memory(lambda root: Simulation(seed, root).run(), "simulation", seed)


def main(run: Callable[[int], None]) -> int:
    """Run the seeds that the command line names; return 1 if one of them fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = []
    begin = time.process_time()
    for seed in range(options.first, options.first + options.seeds):
        try:
            run(seed)
        except Exception as problem:
            if options.seeds == 1:
                raise
            failed.append(seed)
            sys.stdout.write(f"seed {seed}: {type(problem).__name__}: {problem}\n")
    seconds = time.process_time() - begin
    sys.stdout.write(f"{options.seeds} seeds, {len(failed)} failed, {seconds:.0f} s of CPU time\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(run_seed))
