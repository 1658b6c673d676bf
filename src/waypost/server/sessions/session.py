"""One connected agent: what it is given, what it asks for, what it is told. No socket in here.

Rule 1  An answer is given once what it says is on disk.
Rule 2  Answers keep the order of their questions.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from waypost.relay.errors import RelayStopped
from waypost.relay.relay import Relay
from waypost.server.sessions.deliveries import Deliveries, Limits
from waypost.server.sessions.hub import Hub
from waypost.server.sessions.outbox import Outbox
from waypost.server.sessions.receipts import Told
from waypost.server.sessions.requests import Requests
from waypost.wire import frames
from waypost.wire.frames import Codec, FrameOperation, FromAgent
from waypost.wire.payloads import Signal


class Session:
    """For an agent that has said who it is: `start` once, `end` once."""

    def __init__(  # noqa: PLR0913 - what a session is made of
        self,
        hub: Hub,
        relay: Relay,
        subject: str,
        *,
        receive: str,
        codec: Codec,
        limits: Limits,
        show_pressure: bool = False,
        address: str = "",
    ) -> None:
        self.subject = subject
        self.address = address
        self.receive = receive
        self.since_us = relay.now_us()
        self.outbox = Outbox()
        self.requests = Requests(hub, subject, codec, show_pressure)
        self.on_dismissed: Callable[[str], None] = lambda reason: None
        self._hub = hub
        self._relay = relay
        self._codec = codec
        self._limits = limits
        self._show_pressure = show_pressure
        self._deliveries: Deliveries | None = None
        self._stop_signals: Callable[[], None] = lambda: None

    @property
    def unconfirmed(self) -> int:
        """Messages that were sent and not confirmed yet."""
        return 0 if self._deliveries is None else self._deliveries.unconfirmed

    @property
    def unsent(self) -> int:
        """Operations that the agent has yet to read."""
        return len(self.outbox)

    def start(self) -> None:
        """Enter the hub and begin with the stored messages. Raises what `Hub.enter` raises."""
        self._hub.enter(self)
        try:
            self._begin()
        except BaseException:
            self.end()
            raise

    def _begin(self) -> None:
        consumer = self._relay.attach(self.subject, self._arrived)
        self._deliveries = Deliveries(
            consumer,
            self.outbox,
            self._codec,
            self._limits,
            pull=self.receive == "pull",
            tier_of=self._tier_of,
        )
        self._stop_signals = self._relay.on_signal(self.subject, self._relay_signalled)
        self.outbox.put(frames.QueueStatus(pending=consumer.pending()))
        self._deliveries.fill()

    def end(self) -> None:
        """The agent is away from here on; what it did not confirm waits again.

        Confirmations that it was never told are kept for it.
        """
        deliveries, self._deliveries = self._deliveries, None
        self.outbox.end()
        self._stop_signals()
        self._hub.leave(self)
        if deliveries is None:
            return
        untold = [
            (self.subject, one)
            for one in self.outbox.unsent()
            if isinstance(one, frames.DeliveryConfirm) and one.id is None
        ]
        try:
            deliveries.stop()
            self._hub.tell(untold)
        except RelayStopped:
            pass  # what the relay cannot write down now, recovery gives back

    def dismiss(self, reason: str) -> None:
        """The relay ends it."""
        self.on_dismissed(reason)

    def tell(self, operation: FrameOperation) -> None:
        """To be sent."""
        self.outbox.put(operation)

    def tell_lossy(self, operation: FrameOperation) -> None:
        """To be sent if the agent keeps up, and if its encoding has a form for it."""
        try:
            size = len(self._codec.encode(operation))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return
        self.outbox.put_lossy(operation, size)

    def handle(self, operations: Sequence[FromAgent]) -> None:
        """Do what the agent asks; answers follow in the outbox."""
        deliveries = self._deliveries
        if deliveries is None:
            return
        answers: list[FrameOperation] = []
        told: Told = []
        for operation in operations:
            match operation:
                case frames.Send():
                    answers += self.requests.send(operation)
                case frames.Ack():
                    done = deliveries.ack(operation.ids)
                    told += self._hub.confirmations.note(self.subject, done)
                case frames.Nack():
                    deliveries.nack(operation)
                case frames.Fetch():
                    deliveries.fetch(operation)
                case frames.SendSignal():
                    answers += self.requests.signal(operation)
                case frames.Auth():
                    answers.append(frames.Error(error="you said who you are", reason="invalid"))
        self._answer(answers, told)
        deliveries.fill()

    def _tier_of(self, sender: str) -> int:
        """How well `sender` and this agent know each other now. The agent may know: half of it is
        what it has written itself."""
        return self._relay.inspect().tier(sender, self.subject)

    def _arrived(self) -> None:
        if self._deliveries is None:
            return
        try:
            self._deliveries.fill()
        except Exception:
            self.dismiss("the relay failed; this is its fault, not yours")
            raise

    def _answer(self, answers: list[FrameOperation], told: Told) -> None:
        if not answers and not told:
            return
        waiting = self._relay.durable()
        if waiting is None and not self.requests.unanswered:
            self._say(answers, told)
            return
        if waiting is None:
            # Earlier answers are on disk too, but not said yet: these come after them.
            waiting = asyncio.get_running_loop().create_future()
            waiting.set_result(None)
        self.requests.unanswered += len(answers)
        waiting.add_done_callback(partial(self._durable, answers, told))

    def _durable(
        self, answers: list[FrameOperation], told: Told, done: "asyncio.Future[None]"
    ) -> None:
        self.requests.unanswered -= len(answers)
        problem = None if done.cancelled() else done.exception()
        if problem is None:
            self._say(answers, told)
        else:
            self.dismiss(str(problem))

    def _say(self, answers: list[FrameOperation], told: Told) -> None:
        self.outbox.put_all(answers)
        self._hub.tell(told)

    def _relay_signalled(self, subject: str, signal: Signal) -> None:
        """Evictions are told to whoever lost a message; pressure only if the operator says so."""
        if signal.state == "evicted" or self._show_pressure:
            self.tell_lossy(frames.Signalled(subject=subject, signal=signal))
