"""Runs handlers: sequentially for one endpoint, concurrently for different endpoints.

At most once: a message is claimed, and the claim is durable, before its handler runs. If the
relay crashes in between, the message becomes a dead letter and is not handled again.
"""

import asyncio
import inspect
import logging

from waypost.policy.bounds import handler_claim_max_messages
from waypost.policy.reasons import reason_text
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.subscriptions import MessageHandler, Subscriptions
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError, RelayStopped
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.relay.state.payloads import PayloadStore
from waypost.wire.envelopes import Envelope
from waypost.wire.printable import error_text

log = logging.getLogger("waypost.relay")


class HandlerRunner:
    """Runs the handlers subscribed to each endpoint."""

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        claims: Claims,
        transitions: Transitions,
        payloads: PayloadStore,
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._claims = claims
        self._transitions = transitions
        self._payloads = payloads
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        ledger.listeners.on_visible(self.wake)

    def wake(self, endpoint: str) -> None:
        """Start the handlers of `endpoint` if it has messages and they are not running."""
        if self._stopping or endpoint in self._running:
            return
        mailbox = self._ledger.state.mailboxes.get(endpoint)
        if mailbox is None or not mailbox.queue or not self._subscriptions.handlers(endpoint):
            return
        task = asyncio.get_running_loop().create_task(self._run(mailbox))
        self._running[endpoint] = task

    @property
    def busy(self) -> bool:
        """Whether any handler is running."""
        return bool(self._running)

    async def quiet(self) -> None:
        """Wait for the handlers that are running now."""
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def stop(self, grace_s: float) -> None:
        """Let running handlers finish for `grace_s`, then cancel them."""
        self._stopping = True
        running = list(self._running.values())
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, mailbox: Mailbox) -> None:
        try:
            while claimed := self._claims.claim(mailbox, handler_claim_max_messages, "handler"):
                await self._ledger.sync()
                if not await self._handle_all(mailbox, claimed):
                    return
        except RelayStopped as problem:
            log.error("handlers of %s stopped: %s", mailbox.subject, problem)
        finally:
            # In the same step as the empty claim, so that the next wake starts a new run.
            del self._running[mailbox.subject]

    async def _handle_all(self, mailbox: Mailbox, claimed: list[Message]) -> bool:
        for position, message in enumerate(claimed):
            handlers = self._subscriptions.handlers(mailbox.subject)
            if self._stopping or not handlers:
                self._release(claimed[position:])
                return False
            try:
                await self._handle(mailbox, message, handlers)
            except asyncio.CancelledError:
                self._release(claimed[position + 1 :])
                raise
        return True

    def _release(self, claimed: list[Message]) -> None:
        for message in reversed(claimed):
            reason = "its handler was removed before it ran"
            self._transitions.release(message, reason, uncounted=True)

    async def _handle(
        self, mailbox: Mailbox, message: Message, handlers: tuple[MessageHandler, ...]
    ) -> None:
        problems = []
        for handler in handlers:
            try:
                result = handler(self._envelope(message))
                if inspect.isawaitable(result):
                    await result
            except (Exception, asyncio.CancelledError) as problem:
                if _is_cancelled():
                    self._transitions.fail(
                        message, "interrupted: the relay was closed while it ran"
                    )
                    raise
                log.warning("handler for %s raised", message.endpoint, exc_info=problem)
                problems.append(error_text(problem))
        if problems:
            error = error_text("; ".join(problems))
            self._transitions.fail(message, reason_text("handler failed", error), error=error)
        else:
            self._transitions.ack(mailbox, [message], "handler")

    def _envelope(self, message: Message) -> Envelope:
        try:
            return self._payloads.decoded_envelope(message)
        except OSError as problem:
            raise RelayError(f"unreadable: {problem}") from problem


def _is_cancelled() -> bool:
    """Return whether this task itself is cancelled, not only a task its handler awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
