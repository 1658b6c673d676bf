"""Operations that wait for the relay's answer: sends, fetches, and those on scheduled messages.

Rule 1  A bounded number of sends run ahead of their answers; the next one waits.
Rule 2  A caller that stops waiting (timeout, cancellation) withdraws its operation: if it is not
        written yet, it never will be. A written one may have been stored; sending it again with
        the same message id is safe, because an id is stored once.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from waypost.client.errors import OperationRejected, SendTimedOut
from waypost.client.identity import Identity
from waypost.client.message import Outgoing
from waypost.client.options import ClientOptions
from waypost.client.pending import PendingFutures
from waypost.client.protocol.events import Answered, Fetched, OperationFailed
from waypost.client.protocol.session import Session
from waypost.client.seal_memory import SealMemory
from waypost.client.websocket import now_ms
from waypost.policy.bounds import publish_many_max_messages
from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reasons import Reason
from waypost.wire import frames
from waypost.wire.frames import CancelResult, ScheduledResult
from waypost.wire.results import PublishResult, denied_result
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.sealing import Card, Circumstances

FETCH_WAIT_MAX_S = 10.0
"""The relay runs one fetch at a time, so an abandoned one must not occupy it for long."""


class Operations:
    """Sends and fetches of one agent. `wake` notifies the writer of queued operations."""

    def __init__(
        self,
        identity: Identity,
        session: Session,
        options: ClientOptions,
        seals: SealMemory,
        wake: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._session = session
        self._seals = seals
        self._timeout_s = options.send_timeout_s
        self._wake = wake
        self._slots = asyncio.Semaphore(options.unanswered_max)
        self._sends: PendingFutures[int, PublishResult] = PendingFutures()
        self._fetches: PendingFutures[int, Fetched] = PendingFutures()
        self._scheduled: PendingFutures[int, ScheduledResult | CancelResult] = PendingFutures()
        self._fetch_lock = asyncio.Lock()
        self._abandoned_fetch: asyncio.Future[Fetched] | None = None
        self._problem: Exception | None = None

    async def send(self, message: Outgoing) -> PublishResult:
        """Send a message. Raises `SendTimedOut`, `AccessDenied`, `OperationRejected`."""
        ready, message_id = self.prepare(message)
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                ref, answer = self._submit(ready, message_id)
                try:
                    return await answer
                finally:
                    self._withdraw(ref, answer)
        except OperationRejected as rejected:
            if rejected.reason == Reason.ACCESS_DENIED:
                raise AccessDenied(self._identity.subject, message.subject) from None
            raise
        except TimeoutError:
            raise SendTimedOut(message_id, self._timeout_s) from None

    async def send_many(self, messages: Iterable[Outgoing]) -> list[PublishResult]:
        """Send many messages in order, with one timeout. An invalid one fails them all first."""
        wanted = list(messages)
        if len(wanted) > publish_many_max_messages:
            raise InvalidInput(f"send at most {publish_many_max_messages:,} messages at once")
        prepared = [self.prepare(message) for message in wanted]
        submitted: dict[int, asyncio.Future[PublishResult]] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                for message, message_id in prepared:
                    await self._slots.acquire()
                    try:
                        ref, answer = self._submit(message, message_id)
                    except BaseException:
                        self._slots.release()
                        raise
                    answer.add_done_callback(lambda _: self._slots.release())
                    submitted[ref] = answer
                return [await _result_or_denial(answer) for answer in submitted.values()]
        except TimeoutError:
            done = [one.done() and not one.cancelled() for one in submitted.values()]
            first_open = (*done, False).index(False)
            raise SendTimedOut(prepared[first_open][1], self._timeout_s) from None
        finally:
            for ref, answer in submitted.items():
                self._withdraw(ref, answer)

    async def fetch(self, request: frames.Fetch) -> Fetched:
        """Fetch stored messages; the relay waits up to `request.wait` seconds for the first.

        Raises `OperationRejected`, and `TimeoutError` without an answer.
        """
        until_s = time.monotonic() + request.wait
        async with asyncio.timeout(request.wait + self._timeout_s), self._fetch_lock:
            while True:
                left_s = max(0.0, until_s - time.monotonic())
                wait_s = min(left_s, FETCH_WAIT_MAX_S)
                fetched = await self._fetch(msgspec.structs.replace(request, wait=wait_s))
                if fetched.total or left_s <= FETCH_WAIT_MAX_S:
                    return fetched

    async def _fetch(self, request: frames.Fetch) -> Fetched:
        if self._abandoned_fetch is not None:
            await asyncio.wait([self._abandoned_fetch])
            self._abandoned_fetch = None
        self.check_open()
        answer = self._fetches.expect(self._session.fetch(request))
        self._wake()
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandoned_fetch = answer
            answer.add_done_callback(self._nack_all)
            raise

    async def scheduled(self, limit: int) -> list[ScheduledMessage]:
        """Return the scheduled messages of this agent that are due first. Raises `TimeoutError`."""
        answer = await self._ask(
            lambda: self._session.ask(frames.ListScheduled(ref=0, limit=limit))
        )
        return answer.messages if isinstance(answer, ScheduledResult) else []

    async def cancel(self, ids: list[str]) -> list[str]:
        """Cancel scheduled messages; return the ids of those. Raises `TimeoutError`."""
        answer = await self._ask(lambda: self._session.ask(frames.Cancel(ref=0, ids=ids)))
        return answer.ids if isinstance(answer, CancelResult) else []

    async def _ask(self, queue: Callable[[], int]) -> ScheduledResult | CancelResult:
        """Queue an operation about scheduled messages, and wait for its answer."""
        self.check_open()
        ref = queue()
        answer = self._scheduled.expect(ref)
        self._wake()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        finally:
            self._session.withdraw(ref)
            self._scheduled.forget(ref, answer)

    def _nack_all(self, answer: asyncio.Future[Fetched]) -> None:
        """Return the messages of an abandoned fetch to the relay."""
        if not answer.cancelled() and answer.exception() is None:
            for message in answer.result().messages:
                self._session.nack(message.envelope.id, 0.0, release=True)
            self._wake()

    def prepare(self, message: Outgoing) -> tuple[Outgoing, str]:
        """Check a message, assign its id, and seal it if requested. Idempotent."""
        self.check_open()
        message.check()
        message_id = message.message_id or self._session.new_id(now_ms())
        payload = message.payload
        if message.seal_to is not None:
            payload = self._seal(message, message.seal_to, message_id)
        ready = msgspec.structs.replace(
            message, message_id=message_id, payload=payload, seal_to=None
        )
        return ready, message_id

    def _seal(self, message: Outgoing, card: Card, message_id: str) -> dict[str, Any]:
        """Seal a payload. Raises `CardInvalid`, also if the key on the card has changed."""
        from waypost.client.sealing import CardChanged, seal

        under = Circumstances(
            sealed_at=now_ms(),
            reply_to=message.reply_to,
            parent=None if message.parent is None else message.parent.id,
        )
        sealed = seal(
            message.payload, to=card, by=self._identity, message_id=message_id, under=under
        )
        problem = self._seals.check_key(card.subject, card.public_key)
        if problem is not None:
            raise CardChanged(problem)
        return sealed

    def on_event(
        self, event: Answered | OperationFailed | Fetched | ScheduledResult | CancelResult
    ) -> None:
        """Pass an answer of the relay to the caller that waits for it."""
        match event:
            case Answered(ref, result):
                self._sends.resolve(ref, result)
            case Fetched(ref):
                self._fetches.resolve(ref, event)
            case ScheduledResult() | CancelResult():
                self._scheduled.resolve(event.ref, event)
            case OperationFailed(ref, problem):
                self._sends.fail(ref, problem)
                self._fetches.fail(ref, problem)
                self._scheduled.fail(ref, problem)

    def end(self, problem: Exception) -> None:
        """Fail every waiting caller, and every later one."""
        self._problem = problem
        self._sends.fail_all(problem)
        self._fetches.fail_all(problem)
        self._scheduled.fail_all(problem)

    def check_open(self) -> None:
        """Raise the problem that ended the agent, if it has ended."""
        if self._problem is not None:
            raise self._problem

    def _submit(
        self, message: Outgoing, message_id: str
    ) -> tuple[int, asyncio.Future[PublishResult]]:
        self.check_open()
        ref = self._session.send(message, message_id, reply_within_s=message.reply_within)
        self._wake()
        return ref, self._sends.expect(ref)

    def _withdraw(self, ref: int, answer: asyncio.Future[PublishResult]) -> None:
        self._session.withdraw(ref)
        self._sends.forget(ref, answer)


async def _result_or_denial(answer: asyncio.Future[PublishResult]) -> PublishResult:
    """Return the result; turn `access_denied` into a rejection, as `Relay.publish_many` does."""
    try:
        return await answer
    except OperationRejected as rejected:
        if rejected.reason != Reason.ACCESS_DENIED:
            raise
        return denied_result(str(rejected))
