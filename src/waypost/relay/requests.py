"""Request and reply: a publish, and a mailbox of its own for the answer."""

import asyncio
import secrets

from waypost.relay.assembly import Parts
from waypost.relay.clock import microseconds
from waypost.relay.errors import RequestRejected, RequestTimedOut
from waypost.wire.envelopes import Envelope
from waypost.wire.results import PublishResult

REPLY_PREFIX = "_reply"


def reply_subject() -> str:
    """A subject nobody else can know."""
    return f"{REPLY_PREFIX}.{secrets.token_hex(12)}"


class PendingReply:
    """Waits for the first message to a reply subject."""

    def __init__(self, parts: Parts, subject: str, reply_to: str) -> None:
        self._parts = parts
        self._subject = subject
        self._reply_to = reply_to
        self._arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reply: Envelope | None = None

    def take(self, envelope: Envelope) -> None:
        """The handler of the reply subject."""
        if self._reply is None:
            self._reply = envelope
            if not self._arrived.done():
                self._arrived.set_result(None)

    async def wait(self, result: PublishResult, timeout_s: float) -> Envelope:
        """The reply to the request that `result` is about."""
        if result.delivered_to == 0:
            raise RequestRejected(self._subject, result)
        until_us = self._parts.ledger.now_us() + microseconds("timeout", timeout_s)
        await self._parts.timers.wait(self._arrived, until_us)
        if self._reply is None:
            raise RequestTimedOut(f"no reply from {self._subject} within {timeout_s:g} s")
        return self._reply
