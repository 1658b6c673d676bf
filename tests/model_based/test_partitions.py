"""Random publishes between three relays, with crashes and a carrier that loses and repeats.

Whatever happens, after everything has healed: each message that was returned as stored was
delivered once, and none that was returned as rejected; the messages of one sender to one endpoint
are in order; a publish counts once in the rate window; and the state is the fold of the journal.
"""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.harness.partitions import (
    COUNT,
    Cluster,
    cluster_of_three,
    name_in,
    random_faults,
    turns,
)
from waypost import PublishResult
from waypost.policy.partitions import partition_of
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import outbox_of
from waypost.policy.tiers import QosConfig, TierLimits
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayStopped
from waypost.relay.state.recovery import recover
from waypost.relay.state.relay_state import RelayState

NAMES = [name_in(partition, number) for partition in range(COUNT) for number in range(2)]
LIMIT = 40
STEPS = 120


class Life:
    """One random life of three relays, and what must hold at its end."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.results: dict[str, list[PublishResult]] = {}
        """By message id, the results of each attempt that returned."""
        self.sent: dict[str, tuple[str, str]] = {}
        """By message id, sender and subject; in the order of the first attempts."""
        self.received: dict[str, list[str]] = {name: [] for name in NAMES}
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Take random steps, then heal everything and check."""
        carrier = self.cluster.carrier
        carrier.fault = random_faults(self.random, 0.4)
        for _ in range(STEPS):
            await self.step()
        carrier.fault = lambda origin, partition: ""
        for number in range(COUNT):
            if number not in carrier.relays:
                await self.cluster.open(number)
        for _ in range(60):
            await self.cluster.pass_time(400)
            await carrier.deliver_copies()
            if not self.cluster.undecided() and all(task.done() for task in self.tasks):
                break
        await asyncio.gather(*self.tasks)
        assert self.cluster.undecided() == 0
        for name in NAMES:
            await self.drain(name)
        self.check_messages()
        await self.check_state()

    async def step(self) -> None:
        """Take one random step."""
        random, cluster = self.random, self.cluster
        number = random.randrange(COUNT)
        match random.choices(
            ["publish", "again", "drain", "time", "crash", "restart", "down", "copies"],
            [60, 10, 10, 10, 2, 2, 2, 4],
        )[0]:
            case "publish":
                self.publish(*random.sample(NAMES, 2), f"m{len(self.sent)}")
            case "again" if self.sent:
                message_id = random.choice(list(self.sent))
                self.publish(*self.sent[message_id], message_id)
            case "drain":
                await self.drain(random.choice(NAMES))
            case "time":
                await cluster.pass_time(random.choice([100, 1_000]))
            case "crash":
                await cluster.crash(number)
                await cluster.open(number)
            case "restart":
                await cluster.close(number)
                await cluster.open(number)
            case "down" if len(cluster.carrier.relays) == COUNT:
                await cluster.crash(number)
            case "down":
                [number] = set(range(COUNT)) - set(cluster.carrier.relays)
                await cluster.open(number)
            case "copies":
                await cluster.carrier.deliver_copies()
            case _:
                pass
        await turns(random.randrange(20))

    def publish(self, sender: str, subject: str, message_id: str) -> None:
        """Begin a publish, if the relay of its sender is there."""
        relay = self.cluster.carrier.relays.get(partition_of(sender, COUNT))
        if relay is None:
            return
        self.sent.setdefault(message_id, (sender, subject))

        async def attempt() -> None:
            try:
                result = await relay.publish(
                    subject, message_id, sender=sender, message_id=message_id
                )
            except RelayStopped:
                return  # the caller knows nothing
            self.results.setdefault(message_id, []).append(result)

        self.tasks.append(asyncio.create_task(attempt()))

    async def drain(self, subject: str) -> None:
        """Deliver and acknowledge everything in a mailbox, if its relay is there."""
        relay = self.cluster.carrier.relays.get(partition_of(subject, COUNT))
        while relay is not None and (some := await relay.lease(subject, 50)):
            for one in some:
                self.received[subject].append(one.id)
            await relay.ack(subject, [one.id for one in some])

    def check_messages(self) -> None:
        """Check what was delivered against what was returned."""
        delivered = Counter(one for ids in self.received.values() for one in ids)
        assert not [one for one, times in delivered.items() if times > 1]
        for message_id, results in self.results.items():
            if any(result.delivered_to for result in results):
                assert delivered[message_id] == 1, f"{message_id} is lost"
            elif all(map(_is_final, results)):
                assert delivered[message_id] == 0, f"{message_id} was rejected and delivered"
        order = {message_id: at for at, message_id in enumerate(self.sent)}
        for subject, ids in self.received.items():
            first_attempts = [one for one in ids if len(self.results.get(one, ())) <= 1]
            for sender in NAMES:
                own = [order[one] for one in first_attempts if self.sent[one][0] == sender]
                assert own == sorted(own), f"{sender} -> {subject}: {own}"

    async def check_state(self) -> None:
        """Check that each state is the fold of its journal, and that publishes count once."""
        for number, relay in sorted(self.cluster.carrier.relays.items()):
            await relay.sync()
            live = relay._runtime.ledger.state
            data = DataDir(self.cluster.directories[number])
            folded = recover(data, 3_600_000_000, repair=False, use_index=False).state
            assert summary(folded) == summary(live)
            now_ms = self.cluster.clock.now_us // 1000
            for name in NAMES:
                count = live.windows.count(name, now_ms, 3_600_000)
                at_home = partition_of(name, COUNT) == number
                assert count <= (LIMIT if at_home else 0), (name, number)


def summary(state: RelayState) -> dict[str, object]:
    """Return what two states must have in common."""
    pairs = [(one, other) for one in NAMES for other in NAMES]
    return {
        "mailboxes": {name: sorted(box.live) for name, box in state.mailboxes.items() if box.live},
        "outboxes": [sorted(state.outbox(outbox_of(number)).live) for number in range(COUNT)],
        "last_seen": {pair: state.last_seen.get(pair) for pair in pairs},
    }


def _is_final(result: PublishResult) -> bool:
    return all(one.reason is not Reason.PARTITION_UNAVAILABLE for one in result.rejected)


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, seed: int) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(6, 100_000), tier2=TierLimits(12, 100_000))
    limit = RateLimitConfig(max_per_window=LIMIT, window_secs=3_600)
    async with cluster_of_three(tmp_path, qos=qos, rate_limit=limit) as cluster:
        for name in NAMES:
            cluster.relay(name).register_endpoint(name)
            await cluster.relay(name).sync()  # a crash may come at once
        life = Life(cluster, Random(seed))
        await life.run()
        assert len(life.results) > STEPS // 4
