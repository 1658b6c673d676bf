"""The client for programs without asyncio: the same agent, on an event loop in a thread.

    with connect("http://127.0.0.1:7171", Identity.load("web.key")) as agent:
        agent.send("agent.billing", {"refund": 12})
        for message in agent:
            message.ack()

A bridge, not a second client: each method calls the one of `waypost.client.aio` and waits for it.
Any number of threads may use one agent. Signal handlers run on the agent's thread and must not
call it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from waypost.client import aio
from waypost.client.errors import AgentClosed, ClientError
from waypost.client.guard import MessagingGuard
from waypost.client.identity import Identity
from waypost.client.message import Message as AsyncMessage
from waypost.client.message import Outgoing, Received
from waypost.client.options import ClientOptions, chosen_options
from waypost.client.route import Route
from waypost.client.signals import SignalHandler, Stop
from waypost.wire.cards import AgentCard
from waypost.wire.frames import DeliveryConfirm, QueueFull, RequestFailure
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.sealing import Card

T = TypeVar("T")
READ_AHEAD = 50


@contextmanager
def connect(
    url: str, identity: Identity, *, shared: bool = False, options: ClientOptions | None = None
) -> Iterator["Agent"]:
    """Connect to the relay at `url` as `identity`, and stay connected until the block ends.

    Raises as `waypost.client.aio.connect` does.
    """
    route, chosen = Route.parse(url), chosen_options(options, shared=shared)
    thread = _LoopThread()
    try:
        inner = thread.call(_on_loop(lambda: aio.Agent(route, identity, chosen)))
        agent = Agent(inner, thread)
        try:
            thread.call(inner.open())
            yield agent
        except Exception as problem:
            inner.held.log_end(problem)
            raise
        finally:
            agent.close()
    finally:
        thread.stop()


class Message(Received):
    """A received message: `ack` or `nack` it; `with message:` does so at the end of the block, and
    keeps it meanwhile."""

    def __init__(self, inner: AsyncMessage, thread: "_LoopThread") -> None:
        self._inner = inner  # kept: dropping it would release the message
        self._thread = thread
        super().__init__(inner.delivered, inner.opened)

    def ack(self) -> None:
        """Acknowledge: the relay may delete it. Batched with other operations. Idempotent."""
        self._thread.call(self._inner.ack())

    def nack(self, delay: float = 0.0, error: str | BaseException = "") -> None:
        """Return it to the relay, to be delivered again after `delay` seconds.

        The delivery counts as failed, with `error`.
        """
        self._thread.call(self._inner.nack(delay, error))

    def extend(self, seconds: float) -> None:
        """Keep it for `seconds` more, without an ack."""
        self._thread.call(self._inner.extend(seconds))

    def reply(self, payload: object, **options: Any) -> PublishResult:
        """Send a reply, with the parameters of the asyncio client's `Message.reply`."""
        return self._thread.call(self._inner.reply(payload, **options))

    def __enter__(self) -> Self:
        self._thread.post(self._inner.keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: object
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, problem, trace))


class Agent:
    """A connected agent. Created by `connect`. The asyncio client documents each method in full."""

    def __init__(self, inner: aio.Agent, thread: "_LoopThread") -> None:
        self._inner = inner
        self._thread = thread
        self._read_ahead: deque[AsyncMessage] = deque()

    def close(self) -> None:
        """Write queued operations, then disconnect."""
        self._read_ahead.clear()
        self._thread.call(self._inner.close())

    @property
    def subject(self) -> str:
        """Return the subject of this agent."""
        return self._inner.subject

    @property
    def is_connected(self) -> bool:
        """Return whether the agent is connected now."""
        return self._inner.is_connected

    @property
    def is_live(self) -> bool:
        """Return whether all stored messages are delivered and acked on this connection."""
        return self._inner.is_live

    @property
    def queue_status(self) -> int | None:
        """Return how many messages were stored when the agent last connected."""
        return self._inner.queue_status

    @property
    def blocked_count(self) -> int:
        """Return how many messages and signals the block list has dropped."""
        return self._inner.blocked_count

    @property
    def guard(self) -> MessagingGuard:
        """Return the guard of this agent's requests, which is thread-safe."""
        return self._thread.call(_on_loop(lambda: self._inner.guard))

    # Sending

    def send(self, subject: str, payload: object, **options: Any) -> PublishResult:
        """Send a message, with the parameters of the asyncio client's `Agent.send`."""
        parent = options.pop("parent", None)
        options["parent"] = parent.envelope if isinstance(parent, Received) else parent
        return self._thread.call(self._inner.send(subject, payload, **options))

    def send_many(self, messages: Iterable[Outgoing | Mapping[str, Any]]) -> list[PublishResult]:
        """Send many messages in order, in as few frames as possible."""
        return self._thread.call(self._inner.send_many(list(messages)))

    def scheduled(self, **options: Any) -> list[ScheduledMessage]:
        """Return the messages of this agent that are not due yet: those due first."""
        return self._thread.call(self._inner.scheduled(**options))

    def cancel(self, ids: str | Iterable[str]) -> list[str]:
        """Cancel messages of this agent that are not due yet; return their ids."""
        return self._thread.call(self._inner.cancel(ids))

    def request(
        self, subject: str, payload: object, *, timeout: float = 5.0, **options: Any
    ) -> Message:
        """Send a request and wait up to `timeout` seconds for the reply, which needs no ack."""
        asked = self._inner.request(subject, payload, timeout=timeout, **options)
        return Message(self._thread.call(asked), self._thread)

    def delivered(self, message_id: str, timeout: float = 30.0) -> DeliveryConfirm:
        """Wait until a recipient has confirmed `message_id`."""
        return self._thread.call(self._inner.delivered(message_id, timeout))

    def confirmations(self) -> Iterator[DeliveryConfirm]:
        """Iterate over confirmations from now on, until the agent is closed."""
        return self._each(self._inner.confirmations())

    def full_queues(self) -> Iterator[QueueFull]:
        """Iterate over full recipients from now on, until the agent is closed."""
        return self._each(self._inner.full_queues())

    def failures(self) -> Iterator[RequestFailure]:
        """Iterate over failures of awaited messages from now on, until the agent is closed."""
        return self._each(self._inner.failures())

    def set_card(self, card: AgentCard) -> None:
        """Replace what this agent says about itself, also for reconnects."""
        self._thread.call(self._inner.set_card(card))

    def signal(self, subject: str, signal: Signal) -> bool:
        """Signal the agents connected now under a subject or pattern. Return False if this agent
        is not connected."""
        return self._thread.call(_on_loop(lambda: self._inner.signal(subject, signal)))

    def on_signal(self, handler: SignalHandler) -> Stop:
        """Call `handler(sender, signal)` on the agent's thread; return its remover."""
        return self._inner.on_signal(handler)

    # Receiving

    def __iter__(self) -> Iterator[Message]:
        try:
            while True:
                yield self.receive()
        except AgentClosed:
            return

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message. Raises `ReceiveTimedOut` after `timeout` seconds, if given,
        and `AgentClosed`."""
        while True:
            try:  # several threads may take from here
                taken = self._read_ahead.popleft()
                self._inner.held.newest_id = taken.id
                return Message(taken, self._thread)
            except IndexError:
                received = self._thread.call(self._inner.receive_many(READ_AHEAD, timeout))
                self._read_ahead.extend(received)

    def consume(self, handler: Callable[[Message], object]) -> None:
        """Call `handler(message)` for each message until the agent is closed.

        The message is acked if the handler returns; if it raises, that is logged and the message
        nacked with the error.
        """
        for message in self:
            with suppress(Exception), message:  # the message's block has logged it
                handler(message)

    def fetch(self, limit: int = aio.SYNC_BATCH, **options: Any) -> list[Message]:
        """Return up to `limit` stored messages, for agents that pull."""
        fetched = self._thread.call(self._inner.fetch(limit, **options))
        return [Message(one, self._thread) for one in fetched]

    def sync(self, *, small_max_bytes: int = 8192) -> Iterator[Message]:
        """Iterate over all stored messages: those up to `small_max_bytes` first, then the rest."""
        for one in self._each(self._inner.sync(small_max_bytes=small_max_bytes)):
            yield Message(one, self._thread)

    def block(self, pattern: str) -> None:
        """Block senders under `pattern`."""
        self._thread.call(_on_loop(lambda: self._inner.block(pattern)))

    def unblock(self, pattern: str) -> None:
        """Unblock `pattern`."""
        self._thread.call(_on_loop(lambda: self._inner.unblock(pattern)))

    def trust(self, card: Card) -> None:
        """Accept sealed payloads of `card.subject` only if sealed with the key on this card."""
        self._thread.call(_on_loop(lambda: self._inner.trust(card)))

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def next_item() -> list[T]:
            async for item in items:
                return [item]
            return []

        while found := self._thread.call(next_item()):
            yield found.pop()


class _LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="waypost-agent", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it; it has its own timeout."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("deadlock: a signal handler cannot call the agent on its own thread")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise AgentClosed("the agent is closed") from None
        try:
            return future.result()
        except BaseException:
            future.cancel()  # after Ctrl-C here, stop the work there
            raise

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` on the loop without waiting for it; do nothing if the agent is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """Stop the loop and cancel its tasks."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


async def _on_loop(call: Callable[[], T]) -> T:
    """Run a synchronous call on the loop."""
    return call()
