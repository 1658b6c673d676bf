"""The relay: what callers use.

async with Relay("~/.waypost") as relay:
    relay.register_endpoint("agent.a")
    relay.subscribe("agent.a", print)
    await relay.publish("agent.a", {"hello": "there"}, sender="agent.b")
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from waypost.policy.bounds import publish_many_max_messages
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidInput
from waypost.policy.reasons import Reason
from waypost.policy.settings import Settings
from waypost.relay.clock import Clock, system_clock
from waypost.relay.config.access_file import AccessFile
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.delivery.consumers import Consumer
from waypost.relay.delivery.drafts import Draft
from waypost.relay.delivery.endpoints import Endpoint
from waypost.relay.delivery.publish import rejected_result
from waypost.relay.delivery.reply_subjects import reply_subject
from waypost.relay.delivery.requests import PendingReply
from waypost.relay.delivery.signals import SignalHandler
from waypost.relay.delivery.subscriptions import Handler, Subscription
from waypost.relay.errors import RelayStopped
from waypost.relay.lifecycle import close_runtime, open_runtime
from waypost.relay.operating import Operating
from waypost.relay.runtime import Runtime
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult

Stop = Callable[[], None]


class Relay(Operating):
    """A message relay on one data directory, for the event loop it is opened on."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._data = DataDir(data_dir)
        self._settings = settings or Settings()
        self._clock = clock or system_clock
        self._open: tuple[Runtime, DirectoryLock] | None = None

    async def open(self) -> Self:
        """Own the directory, recover what is in it, and start. Closed again by `close`."""
        if self._open is None:
            self._open = await open_runtime(self._data, self._settings, self._clock)
        return self

    async def close(self) -> None:
        """Finish what is under way and let go of the directory. Leases come back at next open."""
        if self._open is not None:
            (parts, lock), self._open = self._open, None
            await close_runtime(parts, lock)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def parts(self) -> Runtime:
        """The parts of the open relay; raises `RelayStopped` when it is not open."""
        if self._open is None:
            raise RelayStopped("the relay is not open: use 'async with Relay(...)' or await open()")
        return self._open[0]

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.parts.settings.current

    @property
    def access(self) -> AccessFile:
        """The access rules: `add_rule`, `remove_rule`, `list_rules`, `check_access`."""
        return self.parts.access

    # Endpoints

    def register_endpoint(self, subject: str) -> Endpoint:
        """Give `subject` a mailbox; one that has it already keeps it, with its mail."""
        endpoint = self.parts.endpoints.register(subject)
        self.parts.dispatch.wake(subject)
        return endpoint

    def unregister_endpoint(self, subject: str) -> None:
        """Take no more mail for `subject`. What waits stays, for whoever registers it again."""
        self.parts.endpoints.unregister(subject)
        self.parts.subscriptions.forget(subject)

    def get_endpoint(self, subject: str) -> Endpoint | None:
        """The endpoint registered under `subject`, if there is one."""
        return self.parts.endpoints.get(subject)

    def list_endpoints(self) -> list[Endpoint]:
        """Every registered endpoint, in order of registration."""
        return self.parts.endpoints.listing()

    # Messages

    async def publish(  # noqa: PLR0913 - each is part of one message
        self,
        subject: str,
        payload: object,
        *,
        sender: str,
        reply_to: str | None = None,
        budget: Budget | Mapping[str, object] | None = None,
        parent: Envelope | None = None,
        message_id: str | None = None,
    ) -> PublishResult:
        """Publish to one endpoint, or with a pattern to every endpoint it covers.

        When this returns, the decision is on disk. Refusals are in the result; only bad input
        (`InvalidInput`) and `AccessDenied` raise. `budget` may only narrow what the relay allows,
        `parent` is the message this one follows from. The same `message_id` again gives the
        first result again.
        """
        parts = self.parts
        draft = Draft(subject, payload, sender, reply_to, budget, parent, message_id)
        result = parts.publishing.take(draft)
        if not result.message_id:
            await asyncio.sleep(0)  # a refused flood must not keep the loop from everyone else
            return result
        waiting = parts.journal.barrier()
        if waiting is not None:
            try:
                await waiting
            except RelayStopped as stopped:
                return _not_stored(stopped)
        return result

    async def publish_many(
        self, drafts: Iterable[Draft | Mapping[str, object]]
    ) -> list[PublishResult]:
        """Publish many messages with one commit. One that is invalid fails them all, up front.

        Each is a `Draft` or a mapping of `publish`'s parameters. A message that access rules
        forbid is rejected with `access_denied`.
        """
        parts = self.parts
        wanted = [one if isinstance(one, Draft) else _draft(one) for one in drafts]
        if len(wanted) > publish_many_max_messages:
            raise InvalidInput(f"publish at most {publish_many_max_messages:,} messages at once")
        results = parts.publishing.take_many(wanted)
        try:
            await parts.journal.sync()
        except RelayStopped as stopped:
            return [_not_stored(stopped) for _ in results]
        return results

    async def request(
        self,
        subject: str,
        payload: object,
        *,
        sender: str,
        timeout: float = 5.0,
        budget: Budget | Mapping[str, object] | None = None,
        parent: Envelope | None = None,
    ) -> Envelope:
        """Publish, and wait `timeout` seconds for the first message to its `reply_to`.

        Raises `RequestRejected` when nobody got the request, `RequestTimedOut` without a reply.
        """
        reply_to = reply_subject()
        pending = PendingReply(self.parts, subject, timeout)
        self.register_endpoint(reply_to)
        stop = self.subscribe(reply_to, pending.take)
        try:
            result = await self.publish(
                subject, payload, sender=sender, reply_to=reply_to, budget=budget, parent=parent
            )
            return await pending.wait(result)
        finally:
            stop()
            self.unregister_endpoint(reply_to)

    def subscribe(self, pattern: str, handler: Handler) -> Stop:
        """Call `handler(envelope)` for each message to an endpoint that `pattern` covers.

        Sync or async. What already waits comes first. Returns the function that ends it.
        """
        parts = self.parts
        stop = parts.subscriptions.add(pattern, handler, instant(parts.ledger.now_us()))
        for mailbox in parts.ledger.state.endpoints.within(pattern):
            if mailbox.queue:
                parts.dispatch.wake(mailbox.subject)
        return stop

    def list_subscriptions(self) -> list[Subscription]:
        """Patterns with a live handler, then those remembered from an earlier run."""
        return self.parts.subscriptions.listing()

    # Signals

    def signal(self, subject: str, signal: Signal) -> int:
        """Tell whoever listens now; never stored. Returns how many listeners there were."""
        return self.parts.signals.emit(subject, signal)

    def on_signal(self, pattern: str, handler: SignalHandler) -> Stop:
        """Call `handler(subject, signal)` for matching signals. Returns what ends it."""
        return self.parts.signals.listen(pattern, handler)

    # Leases

    async def lease(
        self,
        subject: str,
        limit: int = 50,
        max_size_bytes: int | None = None,
        wait: float = 0.0,
    ) -> list[Envelope]:
        """Take up to `limit` messages, for `lease_timeout_ms`; waits up to `wait` seconds for one.

        Larger ones than `max_size_bytes` stay where they are.
        """
        return await self.parts.leases.lease(subject, limit, max_size_bytes, wait)

    async def ack(self, subject: str, ids: str | Iterable[str]) -> int:
        """These are done. On disk when this returns; gives how many were still there."""
        done = self.parts.leases.ack(subject, ids)
        await self.parts.ledger.sync()
        return len(done)

    async def nack(self, subject: str, ids: str | Iterable[str], delay: float = 0.0) -> int:
        """These were not done: they wait again, not before `delay` seconds have passed."""
        returned = self.parts.leases.nack(subject, ids, delay)
        await self.parts.ledger.sync()
        return len(returned)

    # For those who serve it to others

    def join(self, subject: str, on_arrival: Callable[[], None]) -> Consumer:
        """Stay at a mailbox and hold what it gives, without a deadline, until `leave` is called.

        `on_arrival` is called when there may be something to `take`.
        """
        return self.parts.consumers.join(subject, on_arrival)

    def submit(self, draft: Draft, content: bytes | None = None) -> PublishResult:
        """`publish` without waiting: what is decided is on disk once `durable` is done.

        With `content`, the draft was checked before, and this is its payload as JSON.
        """
        return self.parts.publishing.take(draft, content)

    def durable(self) -> "asyncio.Future[None] | None":
        """What to await until everything decided so far is on disk; None if it is already."""
        return self.parts.journal.barrier()

    async def idle(self) -> None:
        """Wait until every recorded event is durable and no handler is at work."""
        parts = self.parts
        parts.journal.hurry()
        await asyncio.sleep(0)  # who waited for this goes first
        await parts.ledger.sync()
        while parts.dispatch.busy or parts.journal.busy:
            await parts.dispatch.quiet()
            await parts.ledger.sync()


def _draft(fields: Mapping[str, object]) -> Draft:
    try:
        return Draft(**fields)  # type: ignore[arg-type]
    except TypeError as problem:
        raise InvalidInput(f"not a message to publish: {problem}") from None


def _not_stored(stopped: RelayStopped) -> PublishResult:
    """A full disk is a refusal like others; any other failure of the journal is an error."""
    if not stopped.full:
        raise stopped
    return rejected_result(Reason.STORAGE_FULL, str(stopped))
