"""Operations that wait for the relay's answer: sends, fetches, scheduled messages, the card.

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
from waypost.policy.bounds import (
    lease_max_messages,
    publish_many_max_messages,
    scheduled_max_messages,
)
from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reasons import Reason
from waypost.wire import frames
from waypost.wire.cards import AgentCard
from waypost.wire.frames import Answer, CancelResult, CardSet, ScheduledResult
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
        self._sends: dict[int, tuple[SendAnswers, int]] = {}
        self._fetches: PendingFutures[int, Fetched] = PendingFutures()
        self._answers: PendingFutures[int, Answer] = PendingFutures()
        self._fetch_lock = asyncio.Lock()
        self._abandoned_fetch: asyncio.Future[Fetched] | None = None
        self._problem: Exception | None = None

    async def send(self, message: Outgoing) -> PublishResult:
        """Send a message. Raises `SendTimedOut`, `AccessDenied`, `OperationRejected`."""
        [result] = await self._exchange([self.prepare(message)])
        if isinstance(result, OperationRejected):
            raise AccessDenied(self._identity.subject, message.subject)
        return result

    async def send_many(self, messages: Iterable[Outgoing]) -> list[PublishResult]:
        """Send many messages in order, with one timeout. An invalid one fails them all first."""
        wanted = list(messages)
        if len(wanted) > publish_many_max_messages:
            raise InvalidInput(f"send at most {publish_many_max_messages:,} messages at once")
        results = await self._exchange([self.prepare(message) for message in wanted])
        # As `Relay.publish_many` does, return a denial as a rejection.
        return [
            denied_result(str(one)) if isinstance(one, OperationRejected) else one
            for one in results
        ]

    async def _exchange(
        self, prepared: list[tuple[Outgoing, str]]
    ) -> list[PublishResult | OperationRejected]:
        """Send messages and return their answers in order, with denials as values."""
        answers, refs = SendAnswers(len(prepared)), []
        try:
            async with asyncio.timeout(self._timeout_s):
                for index, (message, message_id) in enumerate(prepared):
                    if self._slots.locked():
                        self._wake()
                    await self._slots.acquire()
                    try:
                        refs.append(self._submit(message, message_id, answers, index))
                    except BaseException:
                        self._slots.release()
                        raise
                self._wake()
                return await answers.all()
        except TimeoutError:
            raise SendTimedOut(prepared[answers.first_open][1], self._timeout_s) from None
        finally:
            for ref in refs:
                if self._settle(ref) is not None:
                    self._session.withdraw(ref)

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
        if not 1 <= limit <= scheduled_max_messages:
            raise InvalidInput(f"limit must be 1 to {scheduled_max_messages}, not {limit!r:.40}")
        answer = await self._ask(frames.ListScheduled(ref=0, limit=limit))
        return answer.messages if isinstance(answer, ScheduledResult) else []

    async def cancel(self, ids: list[str]) -> list[str]:
        """Cancel scheduled messages; return the ids of those. Raises `TimeoutError`."""
        if len(ids) > lease_max_messages:
            raise InvalidInput(f"cancel at most {lease_max_messages:,} messages at once")
        answer = await self._ask(frames.Cancel(ref=0, ids=ids))
        return answer.ids if isinstance(answer, CancelResult) else []

    async def set_card(self, card: AgentCard) -> None:
        """Replace the card of this agent. Raises `OperationRejected` or `TimeoutError`."""
        if not isinstance(card, AgentCard):
            raise InvalidInput(f"card must be an AgentCard, not {card!r:.40}")
        await self._ask(frames.SetCard(ref=0, card=card))

    async def _ask(self, request: frames.ListScheduled | frames.Cancel | frames.SetCard) -> Answer:
        """Queue a request, and wait for its answer."""
        self.check_open()
        ref = self._session.ask(request)
        answer = self._answers.expect(ref)
        self._wake()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        finally:
            self._session.withdraw(ref)
            self._answers.forget(ref, answer)

    def _nack_all(self, answer: asyncio.Future[Fetched]) -> None:
        """Return the messages of an abandoned fetch to the relay."""
        if not answer.cancelled() and answer.exception() is None:
            for message in answer.result().messages:
                self._session.nack(message.envelope.id, 0.0, release=True)
            self._wake()

    def prepare(self, message: Outgoing) -> tuple[Outgoing, str]:
        """Check a message, return it with its id, and seal it if requested.

        Idempotent for a message that has an id.
        """
        self.check_open()
        message.check()
        message_id = message.message_id or self._session.new_id(now_ms())
        if message.seal_to is not None:
            payload = self._seal(message, message.seal_to, message_id)
            message = msgspec.structs.replace(message, payload=payload, seal_to=None)
        return message, message_id

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

    def on_event(self, event: Answered | OperationFailed | Fetched | Answer) -> None:
        """Pass an answer of the relay to the caller that waits for it."""
        match event:
            case Answered():
                sent = self._settle(event.ref)
                if sent is not None:
                    sent[0].put(sent[1], event.result)
            case Fetched(ref):
                self._fetches.resolve(ref, event)
            case ScheduledResult() | CancelResult() | CardSet():
                self._answers.resolve(event.ref, event)
            case OperationFailed(ref, problem):
                if (sent := self._settle(ref)) is not None:
                    sent[0].fail(sent[1], problem)
                self._fetches.fail(ref, problem)
                self._answers.fail(ref, problem)

    def end(self, problem: Exception) -> None:
        """Fail every waiting caller, and every later one."""
        self._problem = problem
        for answers, index in list(self._sends.values()):
            answers.fail(index, problem)
        self._fetches.fail_all(problem)
        self._answers.fail_all(problem)

    def check_open(self) -> None:
        """Raise the problem that ended the agent, if it has ended."""
        if self._problem is not None:
            raise self._problem

    def _submit(
        self, message: Outgoing, message_id: str, answers: "SendAnswers", index: int
    ) -> int:
        self.check_open()
        ref = self._session.send(message, message_id, reply_within_s=message.reply_within)
        self._sends[ref] = (answers, index)
        return ref

    def _settle(self, ref: int) -> "tuple[SendAnswers, int] | None":
        """Return who waits for the answer to a send, if anyone does, and let the next one go."""
        sent = self._sends.pop(ref, None)
        if sent is not None:
            self._slots.release()
        return sent


class SendAnswers:
    """The answers to messages that are sent together, in the order of the messages.

    The first failure other than a denial is the failure of all of them.
    """

    def __init__(self, count: int) -> None:
        self._answers: list[PublishResult | OperationRejected | None] = [None] * count
        self._left = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def first_open(self) -> int:
        """The index of the first message without an answer, or of the last message."""
        return self._answers.index(None) if self._left else -1

    def put(self, index: int, answer: PublishResult | OperationRejected) -> None:
        """Record an answer."""
        self._answers[index] = answer
        self._left -= 1
        if not self._left and not self._done.done():
            self._done.set_result(None)

    def fail(self, index: int, problem: Exception) -> None:
        """Record a denial, or fail them all."""
        if isinstance(problem, OperationRejected) and problem.reason == Reason.ACCESS_DENIED:
            self.put(index, problem)
        elif not self._done.done():
            self._done.set_exception(problem)
            self._done.exception()  # mark as retrieved: the caller may have given up

    async def all(self) -> list[PublishResult | OperationRejected]:
        """Wait for all answers. Raises the problem of a failed one."""
        if self._left:
            await self._done
        return [one for one in self._answers if one is not None]
