"""Requests: send a message and wait for the reply to it, under the limits of a guard.

Rule 1  The guard is checked before anything is sent, and the outcome is recorded afterwards: a
        reply is a success, anything else a failure of the recipient.
Rule 2  If the relay reports that the recipient has failed, the request fails at once.
Rule 3  A reply is a message from the recipient whose parent is the request. It is acknowledged on
        arrival. A late one is treated like any other message.
"""

import asyncio

import msgspec

from waypost.client.errors import (
    RequestBlocked,
    RequestFailed,
    RequestRejected,
    RequestTimedOut,
)
from waypost.client.feeds import Feed
from waypost.client.guard import MessagingGuard
from waypost.client.message import Outgoing
from waypost.client.operations import Operations
from waypost.client.pending import PendingFutures
from waypost.client.protocol.events import Replied
from waypost.client.protocol.session import Session
from waypost.client.websocket import now_ms
from waypost.policy.bounds import wait_max_s
from waypost.policy.guard import MessagingGuardConfig
from waypost.wire import frames


class GuardedRequests:
    """Requests of the agent `subject`."""

    def __init__(
        self, subject: str, session: Session, operations: Operations, limits: MessagingGuardConfig
    ) -> None:
        self._subject = subject
        self._session = session
        self._operations = operations
        self._limits = limits
        self._guard: MessagingGuard | None = None
        self._replies: PendingFutures[str, frames.Message] = PendingFutures()
        self._subjects: dict[str, str] = {}
        self.failures: Feed[frames.RequestFailure] = Feed()
        """Of all messages that this agent awaits replies to."""

    @property
    def guard(self) -> MessagingGuard:
        """Return the guard of this agent's requests; created on first use, for it has a thread."""
        if self._guard is None:
            self._guard = MessagingGuard(self._limits)
        return self._guard

    async def request(self, message: Outgoing, timeout_s: float) -> frames.Message:
        """Send `message` and return the reply.

        Raises `RequestBlocked`, `RequestRejected`, `RequestFailed`, `RequestTimedOut`, and the
        errors of `send`.
        """
        awaited = msgspec.structs.replace(
            message,
            message_id=message.message_id or self._session.new_id(now_ms()),
            reply_within=min(timeout_s, wait_max_s),
        )
        ready, message_id = self._operations.prepare(awaited)
        verdict = self.guard.check(self._subject, message.subject)
        if verdict.reason is not None:
            wait_ms = verdict.retry_after_ms or 0
            raise RequestBlocked(message.subject, verdict.reason, wait_ms, self._limits)
        replied = False
        try:
            reply = await self._exchange(ready, message_id, timeout_s)
            replied = True
            return reply
        finally:
            if replied:
                self.guard.record_success(message.subject)
            else:
                self.guard.record_failure(message.subject)

    async def _exchange(
        self, message: Outgoing, message_id: str, timeout_s: float
    ) -> frames.Message:
        reply = self._replies.expect(message_id)
        self._subjects[message_id] = message.subject
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._operations.send(message)
                if result.delivered_to == 0:
                    raise RequestRejected(message.subject, result)
                return await reply
        except TimeoutError:
            raise RequestTimedOut(
                f"no reply from {message.subject} within {timeout_s:g} s"
            ) from None
        finally:
            del self._subjects[message_id]
            self._session.forget_request(message_id)
            self._replies.forget(message_id, reply)

    def on_event(self, event: Replied | frames.RequestFailure) -> None:
        """Pass a reply, or the failure of the recipient, to the request that waits for it."""
        if isinstance(event, Replied):
            self._replies.resolve(event.message_id, event.message)
            return
        subject = self._subjects.get(event.message_id)
        if subject is not None:
            self._replies.fail(event.message_id, RequestFailed(subject, event.error))
        self.failures.put(event)

    def end(self, problem: Exception) -> None:
        """Fail every waiting request."""
        self._replies.fail_all(problem)
        self.failures.end()
        if self._guard is not None:
            self._guard.stop()
