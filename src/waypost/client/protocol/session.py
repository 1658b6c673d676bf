"""One agent's session with a relay, over as many connections as it takes. No I/O here.

    input from the I/O shell                 output
    ────────────────────────                 ──────
    connected(), disconnected(…)             delay before the next attempt, or a permanent error
    received(frame, now_ms)                  events
    send, fetch, ack, nack, signal, …        next_frame(): the next frame to write, if any

Rule 1  Nothing but the proof of identity is written before the relay's welcome.
Rule 2  A send is kept until it is answered, and carries its id from the beginning: it is written
        again after a reconnect, and stored once (`outbox`).
Rule 3  A message reaches the application once, and leaves the relay when the application acks it
        (`inbox`).
Rule 4  After a lost connection the session reconnects with backoff, unless the relay rejected it
        for good: wrong key, subject of another key, or, at the first attempt, another connection
        under this subject.
Rule 5  Each failed attempt doubles the backoff, from 0.1 s up to 30 s. Up to half of a delay is
        random, so that agents which lost the same relay do not all reconnect at once. A connection
        of at least ten seconds resets it; one that was accepted and dropped at once does not.

Time, entropy and randomness are arguments.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from waypost.client.errors import NotAuthenticated, operation_error, permanent_failure
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied, SessionEvent
from waypost.client.protocol.framing import FrameBuilder, FrameLimits
from waypost.client.protocol.inbox import BlockList, InboxTracker
from waypost.client.protocol.outbox import Outbox, UnansweredOperation
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.policy.subjects import matches_pattern
from waypost.wire import frames
from waypost.wire.identifiers import UlidFactory
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import Signal, encode_payload, validate_signal
from waypost.wire.results import PublishResult

AUTH_FAILURES_MAX = 3
"""Consecutive authentication failures after a first success before giving up."""

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 30_000
BACKOFF_RESET_MS = 10_000
_DOUBLINGS_MAX = 16
"""More would change nothing: the longest delay is reached before."""


class Backoff:
    """Delays between connection attempts. `random` returns numbers in [0.0, 1.0)."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def delay_ms(self, connected_ms: int) -> int:
        """Return the delay after a connection that lasted `connected_ms` (0: it failed)."""
        if connected_ms >= BACKOFF_RESET_MS:
            self._failures = 0
        ceiling = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(BACKOFF_FIRST_MS, int(ceiling * (0.5 + 0.5 * self._random())))


class Session:
    """The state of one agent's session. `prove` answers a challenge."""

    def __init__(
        self,
        prove: Callable[[str], frames.Auth],
        options: ClientOptions,
        *,
        entropy: Callable[[int], bytes],
        random: Callable[[], float],
    ) -> None:
        self._prove = prove
        self._options = options
        self._codec = frames.CODECS[options.protocol]
        self._ids = UlidFactory(entropy)
        self._backoff = Backoff(random)
        self._outbox = Outbox()
        self._inbox = InboxTracker(options.remembered_max_ids)
        self._requests: dict[str, str] = {}
        self._auth: bytes | None = None
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

    def connected(self) -> None:
        """Start a connection; the relay speaks first."""
        self._auth = None
        self._ready_at_ms = None
        self._last_error = None

    def disconnected(self, now_ms: int, code: int | None = None, text: str = "") -> int:
        """End a connection or a failed attempt; return the delay in ms before the next attempt.

        `code` and `text` are the WebSocket's close code and reason. Raises `NotAuthenticated`,
        `SubjectTaken` or `AlreadyConnected` where another attempt is pointless.
        """
        connected_ms = max(0, now_ms - self._ready_at_ms) if self._ready_at_ms is not None else 0
        error, self._last_error = self._last_error, None
        self._auth = None
        self._ready_at_ms = None
        self._outbox.disconnected()
        reason = (error.error if error else "") or text
        problem = permanent_failure(code, reason, first=self._welcome is None)
        if isinstance(problem, NotAuthenticated) and self._welcome is not None:
            # The key was good once: perhaps the proof only arrived too late.
            self._auth_failures += 1
            problem = problem if self._auth_failures >= AUTH_FAILURES_MAX else None
        if problem is not None:
            raise problem
        return max(self._backoff.delay_ms(connected_ms), error.retry_after_ms if error else 0)

    # Operations of the application

    def new_id(self, now_ms: int) -> str:
        """Return a new unique message id."""
        return self._ids.make(now_ms)

    def send(self, message: OutgoingMessage, message_id: str, *, wants_reply: bool = False) -> int:
        """Queue a message as `message_id`; return the `ref` of its answer.

        Raises `InvalidSubject` or `InvalidMessage` for a message that no relay accepts.
        """
        ref = self._outbox.new_ref()
        operation = frames.Send(
            ref=ref,
            subject=message.subject,
            payload=_encode_payload(self._codec, message.payload),
            reply_to=message.reply_to,
            budget=_budget(message),
            parent=_parent(message),
            message_id=message_id,
        )
        self._outbox.put(ref, UnansweredOperation(self._encode(operation), message_id))
        if wants_reply:
            self._requests[message_id] = message.subject
        return ref

    def fetch(self, limit: int, max_size_bytes: int | None, wait_s: float) -> int:
        """Queue a fetch of stored messages; return the `ref` of its answer."""
        ref = self._outbox.new_ref()
        operation = frames.Fetch(
            ref=ref, limit=limit, max_size_bytes=max_size_bytes, wait=wait_s, tiers=True
        )
        self._outbox.put(ref, UnansweredOperation(self._encode(operation)))
        return ref

    def withdraw(self, ref: int) -> None:
        """Stop waiting for the answer `ref`."""
        self._outbox.withdraw(ref)

    def forget_request(self, message_id: str) -> None:
        """Treat a later reply to `message_id` like any other message."""
        self._requests.pop(message_id, None)

    def ack(self, message_id: str) -> None:
        """Acknowledge a message. After an ack or a nack, further ones have no effect."""
        self._inbox.ack(message_id)

    def nack(self, message_id: str, delay_s: float) -> None:
        """Return a message to the relay, to be delivered again after `delay_s` seconds."""
        if self._inbox.nack(message_id) and self.is_ready:
            operation = frames.Nack(ids=[message_id], delay=delay_s)
            self._outbox.put_once(self._codec.encode(operation))

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
        return self._inbox.has_unwritten or self._outbox.has_unwritten

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
            raise _too_large(len(encoded), self._limits)
        return encoded

    # Reading

    def received(self, frame: bytes | str, now_ms: int) -> list[SessionEvent]:
        """Process a frame from the relay and return its events. Raises `msgspec.DecodeError`."""
        events: list[SessionEvent] = []
        for operation in self._codec.from_relay(frame):
            match operation:
                case frames.Message():
                    self._message(operation, events)
                case frames.SendResult():
                    self._send_result(operation, events)
                case frames.FetchedMessages():
                    self._fetched(operation, events)
                case frames.DeliveryConfirm():
                    if self._inbox.take_confirmation(operation):
                        events.append(operation)
                case frames.Signalled():
                    if not self.block_list.blocks(operation.sender):
                        events.append(operation)
                case frames.Error():
                    self._error(operation, events)
                case frames.Challenge():
                    self._auth = self._codec.encode(self._prove(operation.nonce))
                case frames.Welcome():
                    self._welcomed(operation, now_ms, events)
                case frames.QueueStatus() | frames.Live() | frames.QueueFull():
                    events.append(operation)
        return events

    def _welcomed(self, welcome: frames.Welcome, now_ms: int, events: list[SessionEvent]) -> None:
        limits = FrameLimits.of(welcome)
        self._welcome, self._limits, self._ready_at_ms = welcome, limits, now_ms
        self._auth_failures = 0
        events.append(welcome)
        too_large = self._outbox.remove_if(lambda one: len(one.encoded) > limits.frame_max_bytes)
        events.extend(OperationFailed(ref, _too_large(None, limits)) for ref in too_large)

    def _message(self, message: frames.Message, events: list[SessionEvent]) -> None:
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
            self._inbox.ack(message.envelope.id)
            return False
        return True

    def _fetched(self, answer: frames.FetchedMessages, events: list[SessionEvent]) -> None:
        wanted = [one for one in answer.messages if self._is_for_application(one)]
        if self._outbox.answered(answer.ref) is None:
            for one in wanted:  # the caller gave up: let the relay deliver them again
                self.nack(one.envelope.id, 0.0)
            return
        events.append(Fetched(answer.ref, wanted, len(answer.messages)))

    def _send_result(self, sent: frames.SendResult, events: list[SessionEvent]) -> None:
        if self._outbox.answered(sent.ref) is None:
            return
        result = PublishResult(
            message_id=sent.message_id,
            delivered_to=sent.delivered_to,
            rejected=sent.rejected,
            retry_after_ms=sent.retry_after_ms,
            mailbox_pressure=sent.mailbox_pressure,
        )
        events.append(Answered(sent.ref, result))

    def _error(self, error: frames.Error, events: list[SessionEvent]) -> None:
        if error.fatal:
            self._last_error = error
        if error.ref is None:
            events.append(error)
        elif self._outbox.answered(error.ref) is not None:
            events.append(OperationFailed(error.ref, operation_error(error)))


def _encode_payload(codec: frames.Codec, payload: object) -> msgspec.Raw:
    """Encode a payload for a frame of `codec`. Both encodings reject what JSON cannot hold."""
    encoded = encode_payload(payload)
    if codec.is_text:
        return msgspec.Raw(encoded)
    try:
        return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(encoded)))
    except OverflowError as problem:  # an integer of more than 64 bits, valid in JSON
        raise InvalidMessage(f"payload cannot be sent as msgpack: {problem}") from None


def _budget(message: OutgoingMessage) -> dict[str, Any] | None:
    if message.budget is None:
        return None
    if isinstance(message.budget, Budget):
        return msgspec.structs.asdict(message.budget)
    return dict(message.budget)


def _parent(message: OutgoingMessage) -> frames.Parent | None:
    if message.parent is None:
        return None
    return frames.Parent(id=message.parent.id, budget=message.parent.budget)


def _too_large(size: int | None, limits: FrameLimits) -> InvalidMessage:
    actual = "" if size is None else f"{size:,} bytes, "
    return InvalidMessage(
        f"too large for the relay: {actual}at most {limits.frame_max_bytes:,} bytes in one frame"
    )
