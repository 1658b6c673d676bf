"""Operations that wait for the relay's answer: sends and fetches.

Rule 1  A bounded number of sends run ahead of their answers; the next one waits its turn.
Rule 2  Whoever stops waiting (deadline, cancellation) withdraws the operation: what is not written
        yet never will be. What was written may be done, and its message id tells: the same id
        again is stored once.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from waypost.client.errors import OperationRejected, SendTimedOut
from waypost.client.identity import Identity
from waypost.client.options import ClientOptions
from waypost.client.outgoing import Outgoing
from waypost.client.pending import Waiting
from waypost.client.protocol.events import Answered, Fetched, OperationFailed
from waypost.client.protocol.session import Session
from waypost.client.websocket import now_ms
from waypost.policy.bounds import publish_many_max_messages
from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reasons import Reason
from waypost.wire.results import PublishResult, Rejection

FETCH_WAIT_MAX_S = 10.0
"""The relay takes one fetch at a time, so one that was given up must not wait there for long."""


class Sending:
    """`wake` tells the writer that there is something to write."""

    def __init__(
        self,
        identity: Identity,
        session: Session,
        options: ClientOptions,
        wake: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._session = session
        self._timeout_s = options.send_timeout_s
        self._wake = wake
        self._turns = asyncio.Semaphore(options.unanswered_max)
        self._answers: Waiting[int, PublishResult] = Waiting()
        self._fetches: Waiting[int, Fetched] = Waiting()
        self._fetching = asyncio.Lock()
        self._given_up: asyncio.Future[Fetched] | None = None
        self._problem: Exception | None = None

    async def send(self, message: Outgoing, *, wants_reply: bool = False) -> PublishResult:
        """Send one. Raises `SendTimedOut`, `AccessDenied`, `OperationRejected`."""
        ready, message_id = self.prepare(message)
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                ref, answer = self._submit(ready, message_id, wants_reply)
                try:
                    return await answer
                finally:
                    self._give_up(ref, answer)
        except OperationRejected as rejected:
            if rejected.reason == Reason.ACCESS_DENIED:
                raise AccessDenied(self._identity.subject, message.subject) from None
            raise
        except TimeoutError:
            raise SendTimedOut(message_id, self._timeout_s) from None

    async def send_many(self, messages: Iterable[Outgoing]) -> list[PublishResult]:
        """Send many, in order, one deadline for all. An invalid one fails them all, up front."""
        wanted = list(messages)
        if len(wanted) > publish_many_max_messages:
            raise InvalidInput(f"send at most {publish_many_max_messages:,} messages at once")
        prepared = [self.prepare(message) for message in wanted]
        under_way: dict[int, asyncio.Future[PublishResult]] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                for message, message_id in prepared:
                    await self._turns.acquire()
                    try:
                        ref, answer = self._submit(message, message_id)
                    except BaseException:
                        self._turns.release()
                        raise
                    answer.add_done_callback(lambda _: self._turns.release())
                    under_way[ref] = answer
                return [await _or_denied(answer) for answer in under_way.values()]
        except TimeoutError:
            done = [one.done() and not one.cancelled() for one in under_way.values()]
            first_open = (*done, False).index(False)
            raise SendTimedOut(prepared[first_open][1], self._timeout_s) from None
        finally:
            for ref, answer in under_way.items():
                self._give_up(ref, answer)

    async def fetch(self, limit: int, max_size_bytes: int | None, wait_s: float) -> Fetched:
        """Ask for stored messages, the relay waiting up to `wait_s` for the first.

        Raises `OperationRejected`, and `TimeoutError` without an answer.
        """
        until_s = time.monotonic() + wait_s
        async with asyncio.timeout(wait_s + self._timeout_s), self._fetching:
            while True:
                left_s = max(0.0, until_s - time.monotonic())
                fetched = await self._fetch(limit, max_size_bytes, min(left_s, FETCH_WAIT_MAX_S))
                if fetched.came or left_s <= FETCH_WAIT_MAX_S:
                    return fetched

    async def _fetch(self, limit: int, max_size_bytes: int | None, wait_s: float) -> Fetched:
        if self._given_up is not None:
            await asyncio.wait([self._given_up])
            self._given_up = None
        self.check_open()
        answer = self._fetches.expect(self._session.fetch(limit, max_size_bytes, wait_s))
        self._wake()
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._given_up = answer
            answer.add_done_callback(self._give_back)
            raise

    def _give_back(self, answer: asyncio.Future[Fetched]) -> None:
        """Nobody wants these any more; others may."""
        if not answer.cancelled() and answer.exception() is None:
            for message in answer.result().messages:
                self._session.nack(message.envelope.id, 0.0)
            self._wake()

    def prepare(self, message: Outgoing) -> tuple[Outgoing, str]:
        """Check a message, give it its id, and seal it if it is to be sealed. Twice is as once."""
        self.check_open()
        message.check()
        message_id = message.message_id or self._session.new_id(now_ms())
        payload = message.payload
        if message.seal_to is not None:
            from waypost.client.sealing import seal

            payload = seal(payload, to=message.seal_to, by=self._identity, message_id=message_id)
        ready = msgspec.structs.replace(
            message, message_id=message_id, payload=payload, seal_to=None
        )
        return ready, message_id

    def answered(self, happening: Answered | OperationFailed | Fetched) -> None:
        """The relay has answered."""
        match happening:
            case Answered(ref, result):
                self._answers.resolve(ref, result)
            case Fetched(ref):
                self._fetches.resolve(ref, happening)
            case OperationFailed(ref, problem):
                self._answers.fail(ref, problem)
                self._fetches.fail(ref, problem)

    def end(self, problem: Exception) -> None:
        """No answers will come any more."""
        self._problem = problem
        self._answers.fail_all(problem)
        self._fetches.fail_all(problem)

    def check_open(self) -> None:
        """Raise whatever ended the agent, if something has."""
        if self._problem is not None:
            raise self._problem

    def _submit(
        self, message: Outgoing, message_id: str, wants_reply: bool = False
    ) -> tuple[int, asyncio.Future[PublishResult]]:
        self.check_open()
        ref = self._session.send(message, message_id, wants_reply=wants_reply)
        self._wake()
        return ref, self._answers.expect(ref)

    def _give_up(self, ref: int, answer: asyncio.Future[PublishResult]) -> None:
        self._session.withdraw(ref)
        self._answers.forget(ref, answer)


async def _or_denied(answer: asyncio.Future[PublishResult]) -> PublishResult:
    """The answer; access rules that forbid one of many make a rejection of it, as in the relay."""
    try:
        return await answer
    except OperationRejected as rejected:
        if rejected.reason != Reason.ACCESS_DENIED:
            raise
        denied = Rejection("", Reason.ACCESS_DENIED, str(rejected))
        return PublishResult(message_id="", delivered_to=0, rejected=[denied])
