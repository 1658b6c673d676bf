"""Request and reply: a publish with a mailbox of its own for the reply."""

import asyncio

import msgspec

from waypost.relay.clock import Timers, to_microseconds
from waypost.relay.delivery.askers import Askers
from waypost.relay.delivery.drafts import Draft
from waypost.relay.delivery.endpoints import Endpoints
from waypost.relay.delivery.publish import Publishing
from waypost.relay.delivery.subscriptions import Subscriptions
from waypost.relay.errors import RequestFailed, RequestRejected, RequestTimedOut
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import NO_LIMIT
from waypost.wire.envelopes import Envelope
from waypost.wire.results import PublishResult


class Requests:
    """Makes requests: each has a reply subject for as long as it waits."""

    def __init__(
        self,
        ledger: Ledger,
        timers: Timers,
        endpoints: Endpoints,
        subscriptions: Subscriptions,
        publishing: Publishing,
        askers: Askers,
    ) -> None:
        self._ledger = ledger
        self._timers = timers
        self._endpoints = endpoints
        self._subscriptions = subscriptions
        self._publishing = publishing
        self._askers = askers

    async def request(self, draft: Draft, timeout_s: float) -> Envelope:
        """Publish a draft, wait up to `timeout_s` for the first reply, and return it.

        Raises `RequestRejected`, `RequestFailed` or `RequestTimedOut`.
        """
        reply_to = self._endpoints.make_reply_subject()
        pending = PendingReply(self._ledger, self._timers, draft.subject, timeout_s)
        self._endpoints.register(reply_to)
        at_us = self._ledger.now_us()
        stop = self._subscriptions.add(reply_to, pending.take, at_us, listed=False)
        asked = msgspec.structs.replace(draft, reply_to=reply_to)
        message_id = ""
        try:
            result = self._publishing.publish(asked)
            message_id, copies = result.message_id, result.delivered_to
            if copies:  # before a handler can fail
                self._askers.add(draft.sender, message_id, copies, NO_LIMIT, pending.fail)
            return await pending.wait(await self._publishing.until_durable(result))
        finally:
            self._askers.remove(draft.sender, message_id)
            stop()
            self._endpoints.unregister(reply_to)
            self._subscriptions.forget(reply_to)


class PendingReply:
    """Waits for the first message to a reply subject, or for the failure of the recipient."""

    def __init__(self, ledger: Ledger, timers: Timers, subject: str, timeout_s: float) -> None:
        self._ledger = ledger
        self._timers = timers
        self._timeout_us = to_microseconds("timeout", timeout_s)
        self._subject = subject
        self._arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reply: Envelope | None = None
        self._error: str | None = None

    def fail(self, error: str) -> None:
        """End the wait: the recipient has failed with `error`."""
        self._error = error
        if not self._arrived.done():
            self._arrived.set_result(None)

    def take(self, envelope: Envelope) -> None:
        """Handle a message to the reply subject; the first one is the reply."""
        if self._reply is None:
            self._reply = envelope
            if not self._arrived.done():
                self._arrived.set_result(None)

    async def wait(self, result: PublishResult) -> Envelope:
        """Return the reply to a request with this publish result, or raise."""
        if result.delivered_to == 0:
            raise RequestRejected(self._subject, result)
        until_us = self._ledger.now_us() + self._timeout_us
        await self._timers.wait(self._arrived, until_us)
        if self._reply is None and self._error is not None:
            await self._ledger.sync()
            raise RequestFailed(self._subject, self._error)
        if self._reply is None:
            seconds = self._timeout_us / 1_000_000
            raise RequestTimedOut(f"no reply from {self._subject} within {seconds:g} s")
        return self._reply
