"""Requests: a message, and the wait for the one that follows from it. Guarded.

Rule 1  The guard is asked before anything is sent, and told afterwards how it went: a reply is a
        success, anything else a failure of the one who was asked.
Rule 2  A reply is a message whose parent is the request, from whoever was asked. It is confirmed
        when it arrives. One that comes too late is a message like any other.
"""

import asyncio

from waypost.client.errors import RequestBlocked, RequestRejected, RequestTimedOut
from waypost.client.guard import MessagingGuard
from waypost.client.outgoing import Outgoing
from waypost.client.pending import Waiting
from waypost.client.protocol.events import Replied
from waypost.client.protocol.session import Session
from waypost.client.sending import Sending
from waypost.policy.guard import MessagingGuardConfig
from waypost.wire import frames


class Requests:
    """Requests of one agent, `asker`."""

    def __init__(
        self, asker: str, session: Session, sending: Sending, limits: MessagingGuardConfig
    ) -> None:
        self._asker = asker
        self._session = session
        self._sending = sending
        self._limits = limits
        self._guard: MessagingGuard | None = None
        self._replies: Waiting[str, frames.Message] = Waiting()

    @property
    def guard(self) -> MessagingGuard:
        """The guard of this agent's requests; made when first used, for it has a thread."""
        if self._guard is None:
            self._guard = MessagingGuard(self._limits)
        return self._guard

    async def ask(self, message: Outgoing, timeout_s: float) -> frames.Message:
        """Send and wait for the reply.

        Raises `RequestBlocked`, `RequestRejected`, `RequestTimedOut`, and what `send` raises.
        """
        ready, message_id = self._sending.prepare(message)
        verdict = self.guard.check(self._asker, message.subject)
        if verdict.reason is not None:
            raise RequestBlocked(message.subject, verdict.reason, verdict.retry_after_ms or 0)
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
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._sending.send(message, wants_reply=True)
                if result.delivered_to == 0:
                    raise RequestRejected(message.subject, result)
                return await reply
        except TimeoutError:
            raise RequestTimedOut(
                f"no reply from {message.subject} within {timeout_s:g} s"
            ) from None
        finally:
            self._session.forget_request(message_id)
            self._replies.forget(message_id, reply)

    def replied(self, happening: Replied) -> None:
        """A reply is here."""
        self._replies.resolve(happening.message_id, happening.message)

    def end(self, problem: Exception) -> None:
        """No replies will come any more."""
        self._replies.fail_all(problem)
        if self._guard is not None:
            self._guard.stop()
