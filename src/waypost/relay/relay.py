"""The public interface of the relay.

async with Relay("~/.waypost") as relay:
    relay.register_endpoint("agent.a")
    relay.subscribe("agent.a", print)
    await relay.publish("agent.a", {"hello": "there"}, sender="agent.b")
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from waypost.policy.breakers import CircuitState
from waypost.policy.budgets import Budget
from waypost.policy.schedules import Delay
from waypost.relay.delivery.askers import Askers
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.consumer import Consumer, Delivery
from waypost.relay.delivery.drafts import Draft, drafts_from
from waypost.relay.delivery.endpoints import Endpoint
from waypost.relay.delivery.forwarding import Carrier, ForwardedResult, Partition
from waypost.relay.delivery.leases import LeasedMessage
from waypost.relay.delivery.schedule import Schedule
from waypost.relay.delivery.signals import SignalHandler
from waypost.relay.delivery.subscriptions import MessageHandler, SubscriptionInfo
from waypost.relay.inspection.dead_letters import (
    DeadLetter,
    DeadLetterGroup,
    group_dead_letters,
    list_dead_letters,
)
from waypost.relay.inspection.history import MessageHistory, describe_history
from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import RelayMetrics
from waypost.relay.journal.replicated import Ownership
from waypost.relay.maintenance.signing import Signer
from waypost.relay.opening import OpenableRelay
from waypost.wire.envelopes import Envelope
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult

__all__ = [
    "Carrier", "Consumer", "Delivery", "Draft", "Endpoint", "Inspector", "LeasedMessage",
    "Ownership", "Partition", "Relay",
]  # fmt: skip

Stop = Callable[[], None]
T = TypeVar("T")


class Relay(OpenableRelay):
    """A message relay on one data directory, for the event loop it is opened on."""

    # Endpoints

    def register_endpoint(self, subject: str) -> Endpoint:
        """Register `subject` and create its mailbox; an existing one keeps its messages."""
        endpoint = self._runtime.endpoints.register(subject)
        self._runtime.handlers.wake(subject)
        return endpoint

    def unregister_endpoint(self, subject: str) -> None:
        """Accept no more messages for `subject`; pending ones are kept until it registers again."""
        self._runtime.endpoints.unregister(subject)
        self._runtime.subscriptions.forget(subject)

    def get_endpoint(self, subject: str) -> Endpoint | None:
        """Return the endpoint registered under `subject`, or None."""
        return self._runtime.endpoints.get(subject)

    def list_endpoints(self) -> list[Endpoint]:
        """Return every registered endpoint, in order of registration."""
        return self._runtime.endpoints.listing()

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
        thread: str | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> PublishResult:
        """Publish to one endpoint, or with a pattern to every matching endpoint.

        The decision is durable when this returns. Rejections are in the result; only
        `InvalidInput` and `AccessDenied` are raised. `budget` may only narrow the relay's limits,
        `parent` is the message this one follows from. Publishing the same `message_id` again
        returns the first result. `thread` names a conversation that begins here. With a `delay`
        in seconds, or at the instant `deliver_at`, the message is delivered later.
        """
        draft = Draft(
            subject,
            payload,
            reply_to,
            budget,
            parent,
            message_id,
            thread,
            delay,
            deliver_at,
            sender=sender,
        )
        publishing = self._runtime.publishing
        return await publishing.until_durable(publishing.publish(draft))

    async def publish_many(
        self, drafts: Iterable[Draft | Mapping[str, object]]
    ) -> list[PublishResult]:
        """Publish many messages with one commit; if one is invalid, none is published.

        Each is a `Draft` or a mapping of `publish`'s parameters. A message denied by access rules
        is rejected with `access_denied`.
        """
        return await self._runtime.publishing.publish_many(drafts_from(drafts))

    @property
    def schedule(self) -> Schedule:
        """The schedule: `cancel` without waiting (see `durable`). `inspect` lists messages."""
        return self._runtime.schedule

    async def cancel(self, ids: str | Iterable[str], sender: str | None = None) -> list[str]:
        """Cancel scheduled messages of `sender`, or of any, durably; return the ids of those."""
        return await self._durable(self._runtime.schedule.cancel(ids, sender))

    async def request(  # noqa: PLR0913 - each is part of one message
        self,
        subject: str,
        payload: object,
        *,
        sender: str,
        timeout: float = 5.0,
        budget: Budget | Mapping[str, object] | None = None,
        parent: Envelope | None = None,
        thread: str | None = None,
    ) -> Envelope:
        """Publish, wait up to `timeout` seconds for a reply, and return it.

        Raise `RequestRejected` if no endpoint received the request, `RequestFailed` if its
        recipients failed, `RequestTimedOut` if no reply arrived in time.
        """
        draft = Draft(subject, payload, None, budget, parent, None, thread, sender=sender)
        return await self._runtime.requests.request(draft, timeout)

    def subscribe(self, pattern: str, handler: MessageHandler) -> Stop:
        """Call `handler(envelope)` for each message to an endpoint that matches `pattern`.

        The handler may be sync or async. Pending messages are handled first. Return a function
        that ends the subscription. `subscriptions.json` has the pattern shortly after.
        """
        return self._runtime.subscribe(pattern, handler)

    def list_subscriptions(self) -> list[SubscriptionInfo]:
        """Return patterns with a handler, then patterns of an earlier run without one."""
        return self._runtime.subscriptions.listing()

    # Signals

    def signal(self, subject: str, signal: Signal) -> int:
        """Emit an ephemeral signal to current listeners; return their number."""
        return self._runtime.signals.emit(subject, signal)

    def on_signal(self, pattern: str, handler: SignalHandler) -> Stop:
        """Call `handler(subject, signal)` for matching signals; return a function that ends it."""
        return self._runtime.signals.listen(pattern, handler)

    # Leases

    async def lease(
        self, subject: str, limit: int = 50, max_size_bytes: int | None = None, wait: float = 0.0
    ) -> list[Envelope]:
        """Lease up to `limit` messages for `lease_timeout_ms`; wait up to `wait` seconds for one.

        Messages larger than `max_size_bytes` are not leased.
        """
        leases, read = self._runtime.leases, self._runtime.payloads.decoded_envelope
        return await leases.lease(subject, limit, max_size_bytes, wait, None, read)

    async def peek(self, subject: str, limit: int = 50) -> list[Envelope]:
        """Return the oldest pending messages, up to `limit`; lease none, and change nothing."""
        return [one.envelope for one in self.inspect().peek(subject, limit).messages]

    async def ack(self, subject: str, ids: str | Iterable[str]) -> int:
        """Acknowledge messages, durably; return how many were still in the mailbox."""
        return await self._durable(len(self._runtime.claims.ack(subject, ids)))

    async def nack(
        self,
        subject: str,
        ids: str | Iterable[str],
        delay: float = 0.0,
        error: str | BaseException = "",
    ) -> int:
        """Return leased messages to their queue for `delay` seconds at least; return how many.

        The delivery counts as failed, with `error`, which a dead letter names.
        """
        return await self._durable(len(self._runtime.claims.nack(subject, ids, delay, error)))

    async def extend(self, subject: str, ids: str | Iterable[str], seconds: float) -> int:
        """Extend leases to end `seconds` from now at the earliest; return how many are leased."""
        return await self._durable(len(self._runtime.leases.extend(subject, ids, seconds)))

    # For servers

    def attach(
        self, subject: str, on_arrival: Callable[[], None], *, shared: bool = False
    ) -> Consumer:
        """Attach a consumer to a mailbox: it keeps what it takes while it shows life.

        `on_arrival` is called when there may be messages to `take`. Several may be attached if all
        of them share the mailbox.
        """
        return self._runtime.consumers.attach(subject, on_arrival, shared=shared)

    def on_waiting(self, callback: Callable[[str], None]) -> None:
        """Call `callback(subject)` whenever a mailbox may have durable messages to deliver."""
        self._runtime.ledger.listeners.on_visible(callback)

    async def publish_draft(self, draft: Draft) -> PublishResult:
        """Publish as `publish` does."""
        publishing = self._runtime.publishing
        return await publishing.until_durable(publishing.publish(draft))

    def submit(self, draft: Draft, content: bytes | None = None) -> PublishResult:
        """Publish without waiting; the decision is durable once `durable()` is done.

        `content` is the payload as JSON of a draft that was validated before. The result of a
        message to another partition is incomplete until `decided(result)` is done.
        """
        return self._runtime.publishing.publish(draft, content)

    def is_decided(self, result: PublishResult) -> bool:
        """Return whether a result is complete: no other partition has to decide."""
        return not isinstance(result, ForwardedResult)

    async def decided(self, result: PublishResult) -> PublishResult:
        """Return the complete result of a message that was submitted, once it is durable.

        It is rejected with `partition_unavailable` if another partition does not decide in time.
        """
        return await self._runtime.publishing.until_durable(result)

    async def decide_forwarded(
        self, origin: int, messages: Sequence[Forwarded]
    ) -> list[ForwardOutcome]:
        """Decide about messages that the partition `origin` forwarded to this one, durably.

        A carrier calls this. Messages that were decided before get the same decision. Raises
        `PartitionUnavailable` if nothing can be stored.
        """
        return await self._runtime.decide_forwarded(origin, messages)

    def is_elsewhere(self, subject: str) -> bool:
        """Return whether a subject belongs to another partition."""
        partition = self._runtime.partition
        return partition is not None and not partition.holds(subject)

    async def lease_messages(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None = None,
        wait: float = 0.0,
        max_bytes: int | None = None,
    ) -> list[LeasedMessage]:
        """Lease as `lease` does, with parents and sizes; at most `max_bytes`, or one message."""
        leases = self._runtime.leases
        return await leases.lease(subject, limit, max_size_bytes, wait, max_bytes, leases.read)

    @property
    def askers(self) -> Askers:
        """Senders that wait for a reply: `add` and `remove` them."""
        return self._runtime.askers

    @property
    def claims(self) -> Claims:
        """Leased messages: `ack`, `nack` and `release` them without waiting (see `durable`)."""
        return self._runtime.claims

    def share_syncs(self) -> None:
        """Have a thread sync while agents are busy: while the event loop does, it reads no socket,
        and what arrives meanwhile could have shared a sync."""
        self._runtime.journal.shares_syncs = True

    def sign_journal(self, signer: Signer) -> None:
        """Sign the journal with the relay's key every minute with traffic, and on `close`."""
        self._runtime.sign_with(signer)

    async def sync(self) -> None:
        """Wait until every decision so far is durable."""
        await self._runtime.ledger.sync()

    def now_us(self) -> int:
        """Return the relay's time in µs since the epoch; it never goes back."""
        return self._runtime.ledger.now_us()

    async def wait_until(self, at_us: int) -> None:
        """Wait until the relay's clock has reached `at_us`."""
        await self._runtime.timers.wait(asyncio.get_running_loop().create_future(), at_us)

    def durable(self) -> "asyncio.Future[None] | None":
        """Return a future that is done once every decision so far is durable; None if it is."""
        return self._runtime.journal.barrier()

    def unconfirmed(self) -> "asyncio.Future[None] | None":
        """Return a future to await before anything is delivered; None if there is no need."""
        return self._runtime.journal.unconfirmed()

    async def idle(self) -> None:
        """Wait until every event is durable, no handler is running and no segment being deleted."""
        await self._runtime.idle()

    # For operators

    async def dead_letters(
        self, subject: str | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """Return dead letters of one endpoint or all, the oldest failure first, at most `limit`."""
        state, payloads = self._runtime.ledger.state, self._runtime.payloads
        return list_dead_letters(state, payloads, subject, limit)

    async def dead_letter_groups(self, subject: str | None = None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""
        return group_dead_letters(self._runtime.ledger.state, subject)

    async def redrive(self, ids: str | Iterable[str], subject: str | None = None) -> int:
        """Put dead letters back at the end of their queues; return how many were found.

        No check is repeated, because an operator decided; the time to live still holds.
        """
        return await self._durable(self._runtime.dead_letters.redrive(ids, subject))

    async def purge_dead_letters(
        self, older_than: datetime | timedelta | None = None, subject: str | None = None
    ) -> int:
        """Delete dead letters older than an instant or a duration, or all; return how many."""
        return await self._durable(self._runtime.dead_letters.purge(older_than, subject))

    async def release_leases(self, subject: str) -> int:
        """Return all leased messages of an endpoint to its queue, durably; return how many.

        No delivery counts as failed. A connected agent gets no more until it shows life.
        """
        return await self._durable(self._runtime.consumers.release_leases(subject))

    async def reset_breaker(self, endpoint: str) -> CircuitState:
        """Close the circuit breaker of an endpoint, durably, and forget its failures.

        Return its state before. Raise `UnknownEndpoint` if there is no such endpoint.
        """
        return await self._durable(self._runtime.breaker_feedback.reset(endpoint))

    def metrics(self) -> RelayMetrics:
        """Return statistics and problems of the whole relay."""
        return self._runtime.inspector.metrics()

    def inspect(self) -> Inspector:
        """Return read access to mailboxes, breakers, journal and history."""
        return self._runtime.inspector

    async def explain(self, message_id: str) -> MessageHistory:
        """Return the history of a message: each check, each delivery, each outcome."""
        return describe_history(message_id, await self.inspect().events_of(message_id))

    async def rebuild_index(self) -> int:
        """Rewrite the index from the state; return how many messages it holds."""
        await self._runtime.ledger.sync()
        return await self._runtime.checkpoints.rebuild()

    async def seal_journal(self) -> Path:
        """Seal the current journal segment, and return the directory of the segments."""
        self._runtime.journal.seal()
        await self._runtime.ledger.sync()
        return self._runtime.data.journal

    async def remember_pairs(self, pairs: Iterable[tuple[str, str, int]]) -> int:
        """Import last-seen times (sender, recipient, ms); return how many were newer than known."""
        return await self._durable(self._runtime.ledger.record_pairs(pairs))

    async def _durable(self, result: T) -> T:
        """Return the result of an operation once its events are on disk."""
        await self._runtime.ledger.sync()
        return result

    def sweep(self) -> None:
        """Run the maintenance tasks now."""
        self._runtime.sweeper.sweep()
