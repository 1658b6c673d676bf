"""One agent's session with a relay, over as many connections as it takes. No I/O here.

    input from the I/O shell                 output
    ────────────────────────                 ──────
    connected(), disconnected(…)             delay before the next attempt, or a permanent error
    received(frame, now_ms)                  events
    send, fetch, ack, nack, extend, …        next_frame(): the next frame to write, if any

Rule 1  Nothing but the proof of identity is written before the relay's welcome.
Rule 2  A send is kept until it is answered, and carries its id from the beginning: it is written
        again after a reconnect, and stored once (`outbox`).
Rule 3  A message reaches the application once, and leaves the relay when the application acks it
        (`inbox`).
Rule 4  After a lost connection the session reconnects with backoff, unless the relay rejected it
        for good: wrong key, subject of another key, or, at the first attempt, another connection
        under this subject.
Rule 5  Each failed attempt doubles the backoff, from 0.1 s up to 30 s (5 s with several nodes). Up
        to half of a delay is random, so that agents which lost the same relay do not all reconnect
        at once. A connection of at least ten seconds resets it; one that was accepted and dropped
        at once does not. A longer wait that the relay asks for is kept, up to five minutes.
Rule 6  Operations are checked on arrival (`arrivals`). After a violation the rest of the frame is
        ignored, its messages count as not delivered, and the I/O shell ends the connection.

Time, entropy and randomness are arguments.
"""

from collections.abc import Callable

from waypost.client.errors import NotAuthenticated, RelayMoved, operation_error, permanent_failure
from waypost.client.options import ClientOptions
from waypost.client.protocol import arrivals
from waypost.client.protocol.backoff import BACKOFF_MAX_MS, Backoff
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied, SessionEvent
from waypost.client.protocol.framing import FrameBuilder, FrameLimits
from waypost.client.protocol.inbox import BlockList, InboxTracker
from waypost.client.protocol.outbox import Outbox, UnansweredOperation
from waypost.client.protocol.sending import oversize_error, send_operation
from waypost.policy.bounds import lease_extension_max_s, lease_max_messages
from waypost.policy.errors import InvalidInput, InvalidMessage
from waypost.policy.subjects import matches_pattern
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.identifiers import UlidFactory
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import Signal, validate_signal
from waypost.wire.results import PublishResult

AUTH_FAILURES_MAX = 3
"""Consecutive authentication failures after a first success before giving up."""

RETRY_AFTER_MAX_MS = 300_000
"""The longest wait before a reconnect that a relay may ask for."""


class Session:
    """The state of one agent's session. `prove` answers a challenge."""

    def __init__(
        self,
        prove: Callable[[str], frames.Auth],
        options: ClientOptions,
        *,
        entropy: Callable[[int], bytes],
        random: Callable[[], float],
        backoff_max_ms: int = BACKOFF_MAX_MS,
    ) -> None:
        self._prove = prove
        self._options = options
        self._is_pulling = options.receive == "pull"
        self._codec = CODECS[options.protocol]
        self._ids = UlidFactory(entropy)
        self._backoff = Backoff(random, backoff_max_ms)
        self._outbox = Outbox()
        self._inbox = InboxTracker(options.remembered_max_ids, options.withheld_max_acks)
        self._requests: dict[str, str] = {}
        self._auth: bytes | None = None
        self._is_challenged = False
        self._welcome: frames.Welcome | None = None
        self._limits: FrameLimits | None = None
        self._ready_at_ms: int | None = None
        self._last_error: frames.Error | None = None
        self._auth_failures = 0
        self.block_list = BlockList()

    # The connection

    @property
    def is_ready(self) -> bool:
        """Return whether the relay has welcomed this connection."""
        return self._ready_at_ms is not None

    @property
    def welcome(self) -> frames.Welcome | None:
        """Return the relay's last welcome."""
        return self._welcome

    @property
    def lease_timeout_s(self) -> float:
        """Return after how long without a sign of life the relay takes the agent for stuck.

        0 if it never does, or while there is no connection.
        """
        timeout_ms = self._welcome.lease_timeout_ms if self._welcome and self.is_ready else 0
        return max(0, min(timeout_ms, lease_extension_max_s * 1000)) / 1000

    def connected(self) -> None:
        """Start a connection; the relay speaks first."""
        self._auth = None
        self._is_challenged = False
        self._ready_at_ms = None
        self._last_error = None

    def disconnected(self, now_ms: int, code: int | None = None, text: str = "") -> int:
        """End a connection or a failed attempt; return the delay in ms before the next attempt.

        `code` and `text` are the WebSocket's close code and reason. Raises `NotAuthenticated`,
        `SubjectTaken` or `AlreadyConnected` where another attempt is pointless, `RelayMoved` where
        another node serves this agent.
        """
        connected_ms = max(0, now_ms - self._ready_at_ms) if self._ready_at_ms is not None else 0
        error, self._last_error = self._last_error, None
        self._auth = None
        self._ready_at_ms = None
        self._outbox.disconnected()
        reason = (error.error if error else "") or text
        if error is not None and error.reason == frames.MOVED and error.url:
            raise RelayMoved(error.url)
        problem = permanent_failure(code, reason, first=self._welcome is None)
        if isinstance(problem, NotAuthenticated) and self._welcome is not None:
            # The key was good once: perhaps the proof only arrived too late.
            self._auth_failures += 1
            problem = problem if self._auth_failures >= AUTH_FAILURES_MAX else None
        if problem is not None:
            raise problem
        wanted_ms = error.retry_after_ms if error else 0
        delay_ms = self._backoff.delay_ms(connected_ms)
        return max(delay_ms, arrivals.bounded_wait_ms(wanted_ms, RETRY_AFTER_MAX_MS))

    # Operations of the application

    def new_id(self, now_ms: int) -> str:
        """Return a new unique message id."""
        return self._ids.make(now_ms)

    def send(
        self, message: OutgoingMessage, message_id: str, *, reply_within_s: float = 0.0
    ) -> int:
        """Queue a message as `message_id`; return the `ref` of its answer.

        With `reply_within_s`, its first reply is a `Replied`, unless the agent pulls. Raises
        `InvalidSubject` or `InvalidMessage` for a message that no relay accepts.
        """
        ref = self._outbox.new_ref()
        operation = send_operation(self._codec, ref, message, message_id, reply_within_s)
        self._outbox.put(ref, UnansweredOperation(self._encode(operation), message_id))
        if reply_within_s and not self._is_pulling:
            self._requests[message_id] = message.subject
        return ref

    def fetch(self, request: frames.Fetch) -> int:
        """Queue a fetch of stored messages; set and return the `ref` of its answer."""
        ref = request.ref = self._outbox.new_ref()
        unanswered = UnansweredOperation(self._encode(request), fetch_limit=request.limit)
        self._outbox.put(ref, unanswered)
        return ref

    def ask(self, request: frames.ListScheduled | frames.Cancel | frames.SetCard) -> int:
        """Queue a request; set and return the `ref` of its answer."""
        ref = request.ref = self._outbox.new_ref()
        self._outbox.put(ref, UnansweredOperation(self._encode(request)))
        return ref

    def withdraw(self, ref: int) -> None:
        """Stop waiting for the answer `ref`."""
        self._outbox.withdraw(ref)

    def forget_request(self, message_id: str) -> None:
        """Treat a later reply to `message_id` like any other message."""
        self._requests.pop(message_id, None)

    def ack(self, message_id: str) -> None:
        """Acknowledge a message. After an ack or a nack, further ones have no effect."""
        if self._inbox.ack(message_id):
            self._inbox.ack_withheld()

    def nack(
        self, message_id: str, delay_s: float, error: str = "", *, release: bool = False
    ) -> None:
        """Return a message to the relay, to be delivered again after `delay_s` seconds.

        With `release`, it was not processed, and the delivery does not count as failed.
        """
        if self._inbox.nack(message_id) and self.is_ready:
            operation = frames.Nack(ids=[message_id], delay=delay_s, error=error, release=release)
            self._outbox.put_once(self._codec.encode(operation))

    def extend(self, message_id: str, seconds: float) -> None:
        """Keep a message for `seconds` more, on this connection."""
        if self._inbox.holds(message_id) and self.lease_timeout_s:
            operation = frames.Extend(ids=[message_id], seconds=seconds)
            self._outbox.put_once(self._codec.encode(operation))

    def ack_withheld(self) -> None:
        """Ack the messages of blocked senders that wait for an ack of the application."""
        self._inbox.ack_withheld()

    def holds(self, message_id: str) -> bool:
        """Return whether the application has to ack or nack this message."""
        return self._inbox.holds(message_id)

    def release(self, message_id: str) -> None:
        """Record that the application dropped a message without ack or nack. Thread-safe."""
        self._inbox.release(message_id)

    def signal(self, subject: str, signal: Signal) -> bool:
        """Queue a signal; return False if it cannot be sent now."""
        operation = frames.SendSignal(subject=subject, signal=validate_signal(signal))
        encoded = self._encode(operation)
        return self.is_ready and self._outbox.put_lossy(encoded)

    @property
    def awaits_answers(self) -> bool:
        """Return whether an answer or a reply is outstanding."""
        return bool(self._outbox) or bool(self._requests)

    # Writing

    @property
    def has_unwritten(self) -> bool:
        """Return whether operations are waiting to be written."""
        proof = self._auth is not None
        return proof or self._inbox.has_unwritten or self._outbox.has_unwritten

    def next_frame(self) -> bytes | None:
        """Return the next frame to write, as full as its limits allow; None without operations."""
        if self._auth is not None:
            proof, self._auth = self._auth, None
            return proof
        if not self.is_ready or self._limits is None:
            return None
        frame = FrameBuilder(self._codec, self._limits)
        ids = self._inbox.take_acks(self._limits.ids_max)
        if ids:
            frame.add(self._codec.encode(frames.Ack(ids=ids)))
        self._outbox.fill(frame)
        return frame.encoded()

    def _encode(self, operation: frames.FrameOperation) -> bytes:
        encoded = self._codec.encode(operation)
        if self._limits is not None and len(encoded) > self._limits.frame_max_bytes:
            raise oversize_error(len(encoded), self._limits)
        return encoded

    # Reading

    def received(self, frame: bytes | str, now_ms: int) -> list[SessionEvent]:
        """Process a frame from the relay and return its events.

        Raises `msgspec.DecodeError` for a malformed frame, and `InvalidInput` for a violation.
        """
        operations = self._codec.from_relay(frame)
        arrivals.check_count(operations)
        if self._ready_at_ms is None:
            arrivals.check_handshake(operations, is_challenged=self._is_challenged)
        events: list[SessionEvent] = []
        try:
            for operation in operations:
                if isinstance(operation, frames.Message):  # as most of them are
                    self._message(operation, events)
                else:
                    self._process(operation, now_ms, events)
        except InvalidInput:
            self._discard(events)
            raise
        return events

    def _process(
        self, operation: frames.ControlOperation, now_ms: int, events: list[SessionEvent]
    ) -> None:
        match operation:
            case frames.SendResult() | frames.SentMany():
                self._sent(operation, events)
            case frames.DeliveryConfirm() | frames.DeliveryConfirms():
                arrivals.check_confirmation(operation)
                events += self._inbox.take_confirmations(operation)
            case frames.FetchedMessages():
                self._fetched(operation, events)
            case frames.ScheduledResult() | frames.CancelResult() | frames.CardSet():
                self._answered(operation, events)
            case frames.Signalled():
                arrivals.check_signal(operation)
                if not self.block_list.blocks(operation.sender):
                    events.append(operation)
            case frames.Error():
                self._error(operation, events)
            case frames.Challenge():
                self._challenged(operation)
            case frames.Welcome():
                self._welcomed(operation, now_ms, events)
            case frames.QueueFull() | frames.RequestFailure():
                arrivals.check_notification(operation)
                events.append(operation)
            case frames.QueueStatus() | frames.Live():
                events.append(operation)

    def _discard(self, events: list[SessionEvent]) -> None:
        """Count the messages of a rejected frame as not delivered."""
        for event in events:
            if isinstance(event, frames.Message):
                self._inbox.release(event.envelope.id)
            elif isinstance(event, Fetched):
                for message in event.messages:
                    self._inbox.release(message.envelope.id)

    def _challenged(self, challenge: frames.Challenge) -> None:
        if self.is_ready:
            raise InvalidMessage("challenge after the welcome")
        self._is_challenged = True
        proof = self._prove(challenge.nonce)
        proof.batches = challenge.batches  # a relay that does not offer them rejects the field
        self._auth = self._codec.encode(proof)

    def _welcomed(self, welcome: frames.Welcome, now_ms: int, events: list[SessionEvent]) -> None:
        if self.is_ready:
            raise InvalidMessage("a second welcome on one connection")
        arrivals.check_welcome(welcome)
        limits = FrameLimits.of(welcome)
        self._welcome, self._limits, self._ready_at_ms = welcome, limits, now_ms
        self._auth_failures = 0
        events.append(welcome)
        too_large = self._outbox.remove_if(lambda one: len(one.encoded) > limits.frame_max_bytes)
        events.extend(OperationFailed(ref, oversize_error(None, limits)) for ref in too_large)

    def _message(self, message: frames.Message, events: list[SessionEvent]) -> None:
        arrivals.check_message(message)
        if self._is_pulling:
            raise InvalidMessage("a message that was not fetched")
        if not self._is_for_application(message):
            return
        request = self._requests.get(message.parent) if message.parent else None
        if request is None or not matches_pattern(message.envelope.sender, request):
            events.append(message)
            return
        assert message.parent is not None
        del self._requests[message.parent]
        self._inbox.ack(message.envelope.id)
        events.append(Replied(message.parent, message))

    def _is_for_application(self, message: frames.Message) -> bool:
        """Record a delivery; return False for a duplicate or a blocked sender."""
        if not self._inbox.take(message.envelope.id):
            return False
        if self.block_list.blocks(message.envelope.sender):
            self._inbox.withhold(message.envelope.id)
            return False
        return True

    def _fetched(self, answer: frames.FetchedMessages, events: list[SessionEvent]) -> None:
        asked = self._outbox.find(answer.ref)
        arrivals.check_fetched(answer, asked.fetch_limit if asked else lease_max_messages)
        wanted = [one for one in answer.messages if self._is_for_application(one)]
        if self._outbox.answered(answer.ref) is None:
            for one in wanted:  # the caller gave up: let the relay deliver them again
                self.nack(one.envelope.id, 0.0, release=True)
            return
        events.append(Fetched(answer.ref, wanted, len(answer.messages)))

    def _answered(self, answer: frames.Answer, events: list[SessionEvent]) -> None:
        arrivals.check_answer(answer)
        if self._outbox.answered(answer.ref) is not None:
            events.append(answer)

    def _sent(self, sent: frames.SendResult | frames.SentMany, events: list[SessionEvent]) -> None:
        if isinstance(sent, frames.SentMany):
            for ref in range(sent.ref, sent.last_ref + 1):
                if (message_id := self._outbox.sent(ref)) is not None:
                    result = PublishResult(message_id=message_id, delivered_to=sent.delivered_to)
                    events.append(Answered(ref, result))
            return
        arrivals.check_result(sent)
        if self._outbox.sent(sent.ref) is not None:
            result = PublishResult(
                message_id=sent.message_id,
                delivered_to=sent.delivered_to,
                rejected=sent.rejected,
                retry_after_ms=sent.retry_after_ms,
                mailbox_pressure=sent.mailbox_pressure,
                budget_cut=sent.budget_cut,
                never_connected=sent.never_connected,
            )
            events.append(Answered(sent.ref, result))

    def _error(self, error: frames.Error, events: list[SessionEvent]) -> None:
        arrivals.cut_error(error)
        if error.fatal:
            self._last_error = error
        if error.ref is None:
            events.append(error)
        elif self._outbox.answered(error.ref) is not None:
            events.append(OperationFailed(error.ref, operation_error(error)))
