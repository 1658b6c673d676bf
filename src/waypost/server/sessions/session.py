"""The session of one connected agent, without a socket: deliveries, requests and their responses.

Rule 1  A response is sent once the decision it reports is on disk.
Rule 2  Responses keep the order of their requests.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from waypost.policy.bounds import outbox_max_operations
from waypost.policy.budgets import without_ancestors
from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reasons import Reason
from waypost.relay.errors import RelayStopped
from waypost.relay.relay import Consumer, Draft, Relay
from waypost.server.sessions.answers import answers_to, count_answers, join_answer, send_error
from waypost.server.sessions.awaited_replies import AwaitedReplies, UndecidedSends
from waypost.server.sessions.deliveries import Deliveries, DeliveryLimits
from waypost.server.sessions.errors import SignalDropped, brief
from waypost.server.sessions.hub import Hub
from waypost.server.sessions.outbox import Outbox
from waypost.server.sessions.receipts import (
    LiveReceipts,
    Receipt,
    UnackedReceipts,
    receipt_operations,
)
from waypost.wire import frames
from waypost.wire.codecs import Codec
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import FrameOperation, FromAgent
from waypost.wire.identifiers import validate_message_id
from waypost.wire.payloads import Signal, encode_payload, validate_signal
from waypost.wire.results import PublishResult
from waypost.wire.scheduled import without_endpoints

SLOW_CONSUMER_TEXT = (
    f"slow consumer: outbound queue full ({outbox_max_operations:,} operations); read faster"
)
STUCK_TEXT = (
    "stuck: no message acked, nacked or extended within leaseTimeoutMs; yours are pending again,"
    " and follow after the next ack"
)
ABANDONED_TEXT = "stuck: no message acked, nacked or extended; connect again"
TURN_DELIVERIES = 64
"""Deliveries of one agent that are decided before the event loop gets its turn."""
_numbers = count(1)
RELAY_FAILED_TEXT = "internal error of the relay; connect again"


class Session:
    """For an authenticated agent: `start` once, `end` once.

    `rejected_in_a_row` counts rejections since an operation had an effect, `unanswered` the
    responses that wait for the disk. `on_dismissed` is called with a close code and a reason when
    the relay ends the connection.
    """

    def __init__(  # noqa: PLR0913 - what a session is made of
        self,
        hub: Hub,
        relay: Relay,
        subject: str,
        *,
        receive: str,
        codec: Codec,
        limits: DeliveryLimits,
        shared: bool = False,
        show_pressure: bool = False,
        batches: bool = False,
        address: str = "",
        on_dismissed: Callable[[int, str], None] = lambda code, reason: None,
    ) -> None:
        self.number = next(_numbers)
        self.subject = subject
        self.address = address
        self.receive = receive
        self.shared = shared
        self.since_us = relay.now_us()
        self.outbox = Outbox(self._on_overflow)
        self.rejected_in_a_row = 0
        self._turn_deliveries = 0
        self._ended_because = ""
        self.unanswered = 0
        self._on_dismissed = on_dismissed
        self._hub = hub
        self._relay = relay
        self._codec = codec
        self._limits = limits
        self._show_pressure = show_pressure
        self._batches = batches
        self._consumer: Consumer | None = None
        self._deliveries: Deliveries | None = None
        self._unacked_receipts = UnackedReceipts()
        self._recalled: dict[str, Envelope] = {}
        self._awaited = AwaitedReplies(relay, subject, lambda failure: self._respond([failure], []))
        self._undecided = UndecidedSends(relay, self._on_decided, self.disconnect)
        self._stop_signals: Callable[[], None] = lambda: None

    @property
    def unconfirmed(self) -> int:
        """The number of messages sent and not acknowledged."""
        return 0 if self._deliveries is None else self._deliveries.unconfirmed

    @property
    def stuck_since_us(self) -> int:
        """Since when the agent shows no sign of life, in µs since the epoch; 0 if it does."""
        return 0 if self._consumer is None else self._consumer.stuck_since_us

    def was_stored(self, order: int) -> bool:
        """Return whether the message at a queue position waited for this agent."""
        return self._deliveries is None or self._deliveries.was_stored(order)

    def has_sent(self, message_id: str) -> bool:
        """Return whether this worker of a pool sent a message, as far as it remembers."""
        return self._consumer is not None and self._consumer.has_sent(message_id)

    @property
    def unsent(self) -> int:
        """The number of operations in the outbox."""
        return len(self.outbox)

    def start(self) -> None:
        """Join the hub and deliver the stored messages first. Raises as `Hub.add` does."""
        self._hub.add(self)
        try:
            self._begin()
        except BaseException:
            self.end()
            raise

    def _begin(self) -> None:
        consumer = self._relay.attach(self.subject, self._on_arrival, shared=self.shared)
        consumer.on_stuck, consumer.on_abandoned = self._on_stuck, self._on_abandoned
        self._consumer = consumer
        self._deliveries = Deliveries(
            consumer,
            self.outbox,
            self._codec,
            self._limits,
            pull=self.receive == "pull",
            batches=self._batches,
            tier_of=self._tier_of,
        )
        self._stop_signals = self._relay.on_signal(self.subject, self._on_relay_signal)
        self.outbox.put(frames.QueueStatus(pending=consumer.pending()))
        if self.shared and self.receive == "push":
            self.outbox.put(frames.Live())  # a pool gets stored and new messages alike
        self._deliveries.fill()

    def end(self) -> None:
        """Leave the hub; unacknowledged messages return to the queue.

        Receipts that the agent has not acknowledged are stored for it.
        """
        deliveries, self._deliveries = self._deliveries, None
        self._awaited.clear()
        self._undecided.clear()
        self.outbox.end()
        self._stop_signals()
        self._hub.remove(self)
        if deliveries is None:
            return
        try:
            deliveries.stop(stopping=self._hub.stopping, reason=self._ended_because)
            self._hub.receipts.store(self.subject, self._unacked_receipts.take_all())
        except RelayStopped:
            pass  # recovery returns what the relay cannot record now

    def disconnect(self, reason: str, code: int = frames.CLOSE_GOING_AWAY) -> None:
        """End the connection from the relay's side."""
        self._ended_because = self._ended_because or reason
        self._on_dismissed(code, reason)

    def send(self, operation: FrameOperation) -> None:
        """Queue an operation for the agent."""
        self.outbox.put(operation)

    def send_lossy(self, operation: FrameOperation) -> None:
        """Queue an operation, unless the agent is behind or its encoding cannot represent it."""
        try:
            size = len(self._codec.encode(operation))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return
        self.outbox.put_lossy(operation, size)

    def send_receipts(self, receipts: Sequence[Receipt]) -> bool:
        """Queue receipts for the agent; return False if it must acknowledge others first."""
        if self._deliveries is None or self._unacked_receipts.is_full:
            return False
        receipt_id = self._unacked_receipts.add(receipts)
        self.outbox.put_all(receipt_operations(receipts, receipt_id, batches=self._batches))
        return True

    def handle(  # noqa: PLR0912 - one case per operation
        self, operations: Sequence[FromAgent]
    ) -> int:
        """Carry out operations until one completes `TURN_DELIVERIES`; return how many those are.

        Responses follow in the outbox.
        """
        deliveries = self._deliveries
        if deliveries is None:
            return len(operations)
        responses: list[FrameOperation] = []
        receipts: LiveReceipts = []
        done = self._turn_deliveries = 0
        for operation in operations:
            done += 1
            match operation:
                case frames.Send():
                    self._publish(operation, responses)
                    if self._turn_deliveries >= TURN_DELIVERIES:
                        break
                case frames.Ack():
                    ids = self._unacked_receipts.ack(operation.ids)
                    acked = deliveries.ack(ids) if ids else []
                    had_effect = acked or len(ids) < len(operation.ids)
                    self.rejected_in_a_row = 0 if had_effect else self.rejected_in_a_row + 1
                    receipts += self._hub.receipts.create(self.subject, acked)
                case frames.Nack():
                    deliveries.nack(operation)
                case frames.Extend():
                    deliveries.extend(operation)
                case frames.Fetch():
                    deliveries.fetch(operation)
                case frames.ListScheduled():
                    responses.append(self._scheduled(operation))
                    break  # it may have looked at many
                case frames.Cancel():
                    ids = self._relay.schedule.cancel(operation.ids, self.subject)
                    self.rejected_in_a_row = 0 if ids else self.rejected_in_a_row + 1
                    responses.append(frames.CancelResult(ref=operation.ref, ids=ids))
                case frames.SendSignal():
                    responses += self._signal(operation)
                case frames.SetCard():
                    pass  # the connection keeps it
                case frames.Auth():
                    self.rejected_in_a_row += 1
                    responses.append(frames.Error(error="already authenticated", reason="invalid"))
        self._respond(responses, receipts)
        deliveries.fill()
        return done

    async def recall(self, operations: Sequence[FromAgent]) -> None:
        """Look up the parents of messages to publish; `handle` gets the same operations next."""
        parents, self._recalled = self._relay.inspect().parents, {}
        for operation in operations:
            if isinstance(operation, frames.Send) and operation.parent is not None:
                parent_id = operation.parent.id
                parent = await parents.search(self.subject, parent_id)
                if parent is not None:
                    self._recalled[parent_id] = parent

    def _parent(self, parent: frames.Parent) -> Envelope | None:
        """Return the parent of a message; None if it was not delivered to this agent."""
        validate_message_id(parent.id)
        known = self._relay.inspect().parents.find(self.subject, parent.id)
        return known or self._recalled.get(parent.id)

    def _publish(self, request: frames.Send, responses: list[FrameOperation]) -> None:
        try:
            draft = Draft(
                request.subject,
                self._codec.payload_to_json(request.payload),
                request.reply_to,
                None if request.budget is None else without_ancestors(request.budget),
                None if request.parent is None else self._parent(request.parent),
                request.message_id,
                request.thread,
                request.delay,
                request.deliver_at,
                sender=self.subject,
            )
            result = self._hub.publish(draft)
        except AccessDenied as denied:
            self.rejected_in_a_row += 1
            responses.append(send_error(request, str(denied), str(Reason.ACCESS_DENIED)))
            return
        except InvalidInput as problem:
            self.rejected_in_a_row += 1
            responses.append(send_error(request, brief(problem), "invalid"))
            return
        except RelayStopped as stopped:
            responses.append(send_error(request, str(stopped), "stopped"))
            return
        self._turn_deliveries += result.delivered_to + len(result.rejected)
        if self._relay.is_decided(result):
            self._answer(request, result, responses)
        else:
            self.unanswered += 1
            self._undecided.add(request, result)

    def _on_decided(self, request: frames.Send, result: PublishResult) -> None:
        """Answer a message that another partition has decided about."""
        self.unanswered -= 1
        responses: list[FrameOperation] = []
        self._answer(request, result, responses)
        self.outbox.put_all(responses)

    def _answer(
        self, request: frames.Send, result: PublishResult, responses: list[FrameOperation]
    ) -> None:
        """Add what the agent gets to know of a result, and count what concerns the session."""
        if self.shared and self._consumer is not None and result.delivered_to:
            self._consumer.note_sent(result.message_id)
        if request.reply_within and result.delivered_to:
            self._awaited.add(result, request.reply_within)
        if result.rejected and not result.delivered_to:
            self.rejected_in_a_row += len(result.rejected)
        else:
            self.rejected_in_a_row = 0
        result.never_connected = self._hub.note_of(self.subject, request.subject, result)
        if self._show_pressure or not self._batches or not join_answer(responses, request, result):
            subject_of = self._relay.inspect().subject_of
            responses += answers_to(request, result, subject_of, shown=self._show_pressure)

    def _scheduled(self, request: frames.ListScheduled) -> FrameOperation:
        limit = request.limit
        found = self._relay.inspect().scheduled(self.subject, limit + 1)
        shown, more = without_endpoints(found[:limit]), len(found) > limit
        return frames.ScheduledResult(ref=request.ref, messages=shown, more=more)

    def _signal(self, request: frames.SendSignal) -> list[FrameOperation]:
        """Send a signal; only an error has a response."""
        try:
            encode_payload(request.signal.data)  # data must be valid as a payload
            self._hub.signal(self.subject, request.subject, validate_signal(request.signal))
        except SignalDropped as dropped:
            self.rejected_in_a_row += 1
            return [frames.Error(error=str(dropped), reason=str(dropped.reason))]
        except AccessDenied as denied:
            return [frames.Error(error=str(denied), reason=str(Reason.ACCESS_DENIED))]
        except InvalidInput as problem:
            return [frames.Error(error=brief(problem), reason="invalid")]
        return []

    def _tier_of(self, sender: str) -> int:
        """Return the tier of `sender` for this agent. The agent may see it: half of what decides
        it are its own messages."""
        return self._relay.inspect().tier(sender, self.subject)

    def _on_overflow(self) -> None:
        self.disconnect(SLOW_CONSUMER_TEXT, frames.CLOSE_TOO_SLOW)

    def _on_stuck(self) -> None:
        self.send(frames.Error(error=STUCK_TEXT, reason="stuck"))

    def _on_abandoned(self) -> None:
        self.disconnect(ABANDONED_TEXT, frames.CLOSE_STUCK)

    def _on_arrival(self) -> None:
        if self._deliveries is None:
            return
        try:
            self._deliveries.fill()
        except Exception:
            self.disconnect(RELAY_FAILED_TEXT)
            raise

    def _respond(self, responses: list[FrameOperation], receipts: LiveReceipts) -> None:
        if not responses and not receipts:
            return
        waiting = self._relay.durable()
        if waiting is None and not self.unanswered:
            self._send(responses, receipts)
            return
        if waiting is None:
            # Earlier responses are on disk too, but not sent yet: these follow them.
            waiting = asyncio.get_running_loop().create_future()
            waiting.set_result(None)
        self.unanswered += count_answers(responses)
        waiting.add_done_callback(partial(self._on_durable, responses, receipts))

    def _on_durable(
        self,
        responses: list[FrameOperation],
        receipts: LiveReceipts,
        done: "asyncio.Future[None]",
    ) -> None:
        self.unanswered -= count_answers(responses)
        problem = None if done.cancelled() else done.exception()
        if problem is None:
            self._send(responses, receipts)
        else:
            self.disconnect(str(problem))

    def _send(self, responses: list[FrameOperation], receipts: LiveReceipts) -> None:
        self.outbox.put_all(responses)
        self._hub.send_receipts(receipts)

    def _on_relay_signal(self, subject: str, signal: Signal) -> None:
        """Pass on evictions of the agent's messages, and pressure if the operator allows it."""
        if signal.state == "evicted" or self._show_pressure:
            self.send_lossy(frames.Signalled(subject=subject, signal=signal))
