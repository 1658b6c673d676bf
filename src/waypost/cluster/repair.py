"""Repairs a partition's stream from the journal of a node that is stopped.

Rule 1  What is to be done is planned without changing anything, and shown; nothing else is done.
Rule 2  Every append is conditional on the end that was read: an owner that runs meanwhile either
        is faster, and this ends with `NotOwner`, or finds its next batch rejected and steps down.
Rule 3  An empty stream is filled only if the operator asks for that.
Rule 4  A stream that contradicts itself, or that holds damaged batches, is not appended to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import nats.js.errors
from nats.aio.client import Client

from waypost.cluster.carrier import NatsCarrier
from waypost.cluster.copies import CopyReport
from waypost.cluster.follower import Follower
from waypost.cluster.layout import Layout
from waypost.cluster.lost_events import LostMessages, Republished, publish_again, read_lost
from waypost.cluster.node_file import NodeFile, write_node_file
from waypost.cluster.streams import create_stream, open_log, stream_name
from waypost.cluster.verification import verify_partition
from waypost.policy.settings import Settings
from waypost.relay.clock import system_clock
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.errors import DataDirInUse, PartitionUnavailable, RelayError
from waypost.relay.journal.log import Log
from waypost.relay.relay import Partition, Relay
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome


class RepairOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator allows: to fill empty streams, and to drop lost events for good."""

    refill: bool = False
    give_up: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What will be done for a partition, in words; `blocked` says why nothing can be."""

    number: int
    append: int = 0
    set_aside: bool = False
    refill: bool = False
    create: bool = False
    lost: int = 0
    messages: int = 0
    expired: int = 0
    damaged: int = 0
    give_up: bool = False
    blocked: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.append or self.set_aside or self.refill or self.lost)

    @property
    def steps(self) -> list[str]:
        """What will be done, one text for each step."""
        return list(_steps(self))


class PartitionRepair(msgspec.Struct, kw_only=True):
    """What was done for a partition. `rejected` messages keep their files, by id and reason."""

    number: int
    appended: int = 0
    stored: int = 0
    expired: int = 0
    rejected: dict[str, str] = {}
    removed: list[str] = []
    problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.problem and not self.rejected


class Repairer:
    """Repairs the partitions of one node, whose directory it holds until `locked` ends."""

    def __init__(
        self, client: Client, layout: Layout, data_dir: Path, node: NodeFile, options: RepairOptions
    ) -> None:
        self._client = client
        self._layout = layout
        self._data_dir = data_dir
        self._node = node
        self._options = options
        self._carrier = NatsCarrier(client, node.cluster)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, so that its node does not start meanwhile."""
        try:
            lock = DirectoryLock(DataDir(self._data_dir))
        except DataDirInUse:
            raise DataDirInUse(
                f"{self._data_dir} is in use: stop its node first; the others may run"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def adopt(self) -> None:
        """Make the directory one of this cluster, if it was of an earlier one of the same name."""
        write_node_file(self._data_dir, self._node)

    async def plan(self, number: int) -> Plan:
        """Return what to do for a partition; nothing is changed."""
        directory = self._directory(number)
        if not (directory / "journal").exists():
            return Plan(number=number)
        cluster, layout = self._node.cluster, self._layout
        if not await self._exists(number):
            return self._plan_refill(number, create=True)
        found = await verify_partition(self._client, cluster, number, layout, [directory])
        copy = found.copies[0] if found.copies else None
        if found.findings or copy is None:
            return Plan(number=number, blocked="; ".join(found.findings))
        if not found.records and copy.ahead:
            return self._plan_refill(number, create=False)
        return self._plan_rest(number, copy)

    async def carry_out(self, plan: Plan) -> PartitionRepair:
        """Do what was planned for a partition. Raises `RelayError` and `OSError`."""
        cluster, done = self._node.cluster, PartitionRepair(number=plan.number)
        data, replicas = DataDir(self._directory(plan.number)), self._layout.replicas
        if plan.create:
            await create_stream(self._client, cluster, plan.number, replicas=replicas)
        log = await open_log(self._client, cluster, plan.number, replicas=replicas)
        try:
            if plan.refill or plan.append or plan.set_aside:
                lock = DirectoryLock(data)
                try:
                    done.appended = await self._append(data, log, refill=plan.refill)
                finally:
                    lock.release()
            if plan.lost or plan.set_aside:
                await self._repair_lost(plan, data, log, done)
        finally:
            await log.close()
        return done

    def _plan_refill(self, number: int, *, create: bool) -> Plan:
        if self._options.refill:
            return Plan(number=number, refill=True, create=create)
        state = "does not exist" if create else "is empty"
        return Plan(
            number=number,
            blocked=(
                f"the stream {stream_name(self._node.cluster, number)} {state}, and"
                f" {self._directory(number)} has events of it: check that this is the right"
                " cluster; --refill fills it from this journal"
            ),
        )

    def _plan_rest(self, number: int, copy: CopyReport) -> Plan:
        lost = self._read_lost(number)
        return Plan(
            number=number,
            append=copy.ahead if copy.state == "ahead" else 0,
            set_aside=copy.state == "different" and copy.confirmed,
            lost=len(lost.files),
            messages=len(lost.messages),
            expired=lost.expired,
            damaged=len(lost.damaged),
            give_up=self._options.give_up,
        )

    async def _append(self, data: DataDir, log: Log, *, refill: bool) -> int:
        """Append what the stream lacks; set aside what it has otherwise. Return how many."""
        follower = Follower(data, log)
        try:
            if refill:
                await follower.refill(self._node.node)
            else:
                await follower.append_missing(await follower.catch_up(), self._node.node)
            return follower.appended
        finally:
            await follower.close()

    async def _repair_lost(
        self, plan: Plan, data: DataDir, log: Log, done: PartitionRepair
    ) -> None:
        """Publish lost messages again, or give them up; then remove their files."""
        lost = self._read_lost(plan.number)
        done.expired = lost.expired
        if not self._options.give_up:
            again = await self._publish(plan.number, lost, data, log)
            done.stored, done.rejected = again.stored, again.rejected
            done.rejected |= dict.fromkeys(lost.damaged, "its payload is in no file any more")
        if not done.rejected:
            for path in lost.files:
                path.unlink()
                done.removed.append(str(path))

    async def _publish(
        self, number: int, lost: LostMessages, data: DataDir, log: Log
    ) -> Republished:
        """Publish to the owner of the partition, or own it for that time if no node does."""
        count = self._layout.partitions
        try:
            return await publish_again(lost, number, count, self._carrier.carry)
        except PartitionUnavailable:
            if await self._is_owned(number):
                raise
        lock = DirectoryLock(data)
        try:
            follower = Follower(data, log)
            try:
                ownership = await follower.take_over(self._node.node, ignore_lost=True)
            finally:
                await follower.close()
        finally:
            lock.release()
        relay: Relay

        def create_mailbox(subject: str) -> bool:
            relay.register_endpoint(subject)  # it had one when it got the message
            return True

        async with Relay(
            data.root,
            settings=Settings(storage="journal", watch_files=False),
            create_mailbox=create_mailbox,
            ownership=ownership,
            partition=Partition(number, count, self._carrier),
        ) as relay:

            async def decide(
                origin: int, partition: int, messages: Sequence[Forwarded]
            ) -> Sequence[ForwardOutcome]:
                if partition == number:
                    return await relay.decide_forwarded(origin, messages)
                return await self._carrier.carry(origin, partition, messages)

            return await publish_again(lost, number, count, decide)

    async def _is_owned(self, number: int) -> bool:
        """Return whether a node answers for a partition."""
        try:
            await self._carrier.carry(number, number, ())
        except PartitionUnavailable as problem:
            return "no node owns it" not in str(problem)
        return True

    async def _exists(self, number: int) -> bool:
        try:
            await self._client.jetstream().stream_info(stream_name(self._node.cluster, number))
        except nats.js.errors.NotFoundError:
            return False
        return True

    def _read_lost(self, number: int) -> LostMessages:
        return read_lost(self._directory(number) / "journal", number, system_clock())

    def _directory(self, number: int) -> Path:
        return self._data_dir / "partitions" / str(number)


async def repair_all(
    repairer: Repairer, numbers: Iterable[int], confirm: Callable[[list[Plan]], bool]
) -> list[PartitionRepair] | None:
    """Plan all partitions and carry that out once it is confirmed; None if it is not.

    A partition that cannot be repaired does not keep the others from being.
    """
    with repairer.locked():
        plans = [await repairer.plan(number) for number in numbers]
        if not confirm(plans):
            return None
        repairer.adopt()
        done = []
        for plan in plans:
            if plan.is_needed:
                try:
                    done.append(await repairer.carry_out(plan))
                except (RelayError, OSError) as problem:
                    done.append(PartitionRepair(number=plan.number, problem=str(problem)))
            elif plan.blocked:
                done.append(PartitionRepair(number=plan.number, problem=plan.blocked))
        return done


def _steps(plan: Plan) -> Iterator[str]:
    if plan.create:
        yield "create its stream again"
    if plan.refill:
        yield "fill its empty stream with the whole journal of this node"
    if plan.append:
        yield f"append {_count(plan.append, 'batch', 'batches')} that its stream lost"
    if plan.set_aside:
        yield "set aside the batches in whose place its stream has others"
        verb = "drop" if plan.give_up else "publish"
        yield f"{verb} their messages{'' if plan.give_up else ' again, under the same ids'}"
    if plan.lost:
        files, gone = _count(plan.lost, "file"), _count(plan.messages, "message")
        if plan.give_up:
            yield f"delete {files} with lost events, and {gone} in them for good"
        else:
            yield f"publish {gone} of lost events again, under the same ids, then delete {files}"
        if plan.expired:
            yield f"leave out {_count(plan.expired, 'message')} whose time to live is over"
        if plan.damaged:
            yield f"keep the files: the payloads of {_count(plan.damaged, 'message')} are damaged"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
