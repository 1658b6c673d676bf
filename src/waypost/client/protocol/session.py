"""One agent's conversation with a relay, over as many connections as it takes. No I/O here.

    shell tells                              session says
    ───────────                              ────────────
    connected(), disconnected(…)             when to connect again, or why never
    received(frame, now_ms)                  what happened
    send, fetch, ack, nack, signal, …        next_frame(): what to write, if anything

Rule 1  Nothing but the proof is written before the relay has said welcome.
Rule 2  A send is kept until it is answered, and carries its id from the beginning: it is written
        again after a reconnect, and stored once (`outbox`).
Rule 3  A message reaches the application once, and leaves the relay when the application says so
        (`inbox`).
Rule 4  A connection that ends is made again after a while (`backoff`), unless the relay said that
        it is of no use: wrong key, subject of another, or at the first attempt somebody else
        connected.

Time, entropy and chance are given in.
"""

from collections.abc import Callable

from waypost.client.errors import NotAuthenticated, end_of_trying
from waypost.client.options import ClientOptions
from waypost.client.outgoing import Outgoing, encode_payload_for, rejection
from waypost.client.protocol.backoff import Backoff
from waypost.client.protocol.blocklist import BlockList
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied, SessionEvent
from waypost.client.protocol.framing import Frame, Limits
from waypost.client.protocol.inbox import Inbox
from waypost.client.protocol.outbox import Awaited, Outbox
from waypost.policy.errors import InvalidMessage
from waypost.policy.subjects import matches_pattern
from waypost.wire import frames
from waypost.wire.identifiers import UlidFactory
from waypost.wire.payloads import Signal, validate_signal
from waypost.wire.results import PublishResult

DENIED_MAX = 3
"""An agent that was let in before is not let in again: so often in a row is the end of it."""


class Session:
    """See the module. `prove` answers a challenge; `entropy` and `chance` are sources of it."""

    def __init__(
        self,
        prove: Callable[[str], frames.Auth],
        options: ClientOptions,
        *,
        entropy: Callable[[int], bytes],
        chance: Callable[[], float],
    ) -> None:
        self._prove = prove
        self._options = options
        self._codec = frames.CODECS[options.protocol]
        self._ids = UlidFactory(entropy)
        self._backoff = Backoff(chance)
        self._outbox = Outbox()
        self._inbox = Inbox(options.remembered_max_ids)
        self._requests: dict[str, str] = {}
        self._auth: bytes | None = None
        self._welcomed: frames.Welcome | None = None
        self._limits: Limits | None = None
        self._ready_at_ms: int | None = None
        self._last_error: frames.Error | None = None
        self._denied = 0
        self.block_list = BlockList()

    # The connection

    @property
    def is_ready(self) -> bool:
        """Whether the relay has said welcome on this connection."""
        return self._ready_at_ms is not None

    @property
    def welcome(self) -> frames.Welcome | None:
        """What the relay said last when it let us in."""
        return self._welcomed

    def connected(self) -> None:
        """A connection is open; the relay speaks first."""
        self._auth = None
        self._ready_at_ms = None
        self._last_error = None

    def disconnected(self, now_ms: int, code: int | None = None, text: str = "") -> int:
        """The connection is gone, or could not be made: how many ms to wait before the next.

        `code` and `text` are those of the WebSocket's end. Raises `NotAuthenticated`,
        `SubjectTaken` or `AlreadyConnected` where another attempt would be of no use.
        """
        connected_ms = max(0, now_ms - self._ready_at_ms) if self._ready_at_ms is not None else 0
        told, self._last_error = self._last_error, None
        self._auth = None
        self._ready_at_ms = None
        self._outbox.disconnected()
        words = (told.error if told else "") or text
        problem = end_of_trying(code, words, first=self._welcomed is None)
        if isinstance(problem, NotAuthenticated) and self._welcomed is not None:
            # The key was good once: perhaps the proof only came too late.
            self._denied += 1
            problem = problem if self._denied >= DENIED_MAX else None
        if problem is not None:
            raise problem
        return max(self._backoff.after(connected_ms), told.retry_after_ms if told else 0)

    # What the application wants

    def new_id(self, now_ms: int) -> str:
        """A message id that nobody else has."""
        return self._ids.make(now_ms)

    def send(self, message: Outgoing, message_id: str, *, wants_reply: bool = False) -> int:
        """Publish as `message_id`; the ref by which the answer will be known.

        Raises `InvalidSubject` or `InvalidMessage` for what no relay would take.
        """
        ref = self._outbox.new_ref()
        operation = frames.Send(
            ref=ref,
            subject=message.subject,
            payload=encode_payload_for(self._codec, message.payload),
            reply_to=message.reply_to,
            budget=message.budget_wish,
            parent=message.parent_frame,
            message_id=message_id,
        )
        self._outbox.put(ref, Awaited(self._fitting(operation), message_id))
        if wants_reply:
            self._requests[message_id] = message.subject
        return ref

    def fetch(self, limit: int, max_size_bytes: int | None, wait_s: float) -> int:
        """Ask for stored messages; the ref by which the answer will be known."""
        ref = self._outbox.new_ref()
        asked = frames.Fetch(
            ref=ref, limit=limit, max_size_bytes=max_size_bytes, wait=wait_s, tiers=True
        )
        self._outbox.put(ref, Awaited(self._fitting(asked)))
        return ref

    def withdraw(self, ref: int) -> None:
        """Nobody waits for this answer any more."""
        self._outbox.withdraw(ref)

    def forget_request(self, message_id: str) -> None:
        """A reply to `message_id` is from now on a message like any other."""
        self._requests.pop(message_id, None)

    def ack(self, message_id: str) -> None:
        """The application is done with a message. Once answered, more answers change nothing."""
        self._inbox.ack(message_id)

    def nack(self, message_id: str, delay_s: float) -> None:
        """The application gives a message back, to have it again after `delay_s` seconds."""
        if self._inbox.nack(message_id) and self.is_ready:
            given_back = frames.Nack(ids=[message_id], delay=delay_s)
            self._outbox.put_once(self._codec.encode(given_back))

    def let_go(self, message_id: str) -> None:
        """The application forgot a message without an answer. Safe in any thread."""
        self._inbox.let_go(message_id)

    def signal(self, subject: str, signal: Signal) -> bool:
        """Tell whoever is there now; False when nobody can be told at the moment."""
        operation = frames.SendSignal(subject=subject, signal=validate_signal(signal))
        encoded = self._fitting(operation)
        return self.is_ready and self._outbox.put_lossy(encoded)

    @property
    def awaits_answers(self) -> bool:
        """Whether somebody waits for something the relay has yet to say."""
        return bool(self._outbox) or bool(self._requests)

    # What is written

    @property
    def has_unwritten(self) -> bool:
        """Whether a frame waits to be written."""
        return self._inbox.has_unwritten or self._outbox.has_unwritten

    def next_frame(self) -> bytes | None:
        """The next frame to write, with as much in it as it may hold; None if there is nothing."""
        if self._auth is not None:
            proof, self._auth = self._auth, None
            return proof
        if not self.is_ready or self._limits is None:
            return None
        frame = Frame(self._codec, self._limits)
        ids = self._inbox.take_acks(self._limits.ids_max)
        if ids:
            frame.add(self._codec.encode(frames.Ack(ids=ids)))
        self._outbox.fill(frame)
        return frame.encoded()

    def _fitting(self, operation: frames.FrameOperation) -> bytes:
        encoded = self._codec.encode(operation)
        if self._limits is not None and len(encoded) > self._limits.frame_max_bytes:
            raise _too_large(len(encoded), self._limits)
        return encoded

    # What came

    def received(self, frame: bytes | str, now_ms: int) -> list[SessionEvent]:
        """Take a frame from the relay: what happened. `msgspec.DecodeError` if it is none."""
        happened: list[SessionEvent] = []
        for operation in self._codec.from_relay(frame):
            match operation:
                case frames.Message():
                    self._arrived(operation, happened)
                case frames.SendResult():
                    self._sent(operation, happened)
                case frames.FetchedMessages():
                    self._fetched(operation, happened)
                case frames.DeliveryConfirm():
                    if self._inbox.tell(operation):
                        happened.append(operation)
                case frames.Signalled():
                    if not self.block_list.keeps_away(operation.sender):
                        happened.append(operation)
                case frames.Error():
                    self._failed(operation, happened)
                case frames.Challenge():
                    self._auth = self._codec.encode(self._prove(operation.nonce))
                case frames.Welcome():
                    self._let_in(operation, now_ms, happened)
                case frames.QueueStatus() | frames.Live() | frames.QueueFull():
                    happened.append(operation)
        return happened

    def _let_in(self, welcome: frames.Welcome, now_ms: int, happened: list[SessionEvent]) -> None:
        limits = Limits.of(welcome)
        self._welcomed, self._limits, self._ready_at_ms = welcome, limits, now_ms
        self._denied = 0
        happened.append(welcome)
        too_large = self._outbox.remove_if(lambda one: len(one.encoded) > limits.frame_max_bytes)
        happened.extend(OperationFailed(ref, _too_large(None, limits)) for ref in too_large)

    def _arrived(self, message: frames.Message, happened: list[SessionEvent]) -> None:
        wanted = self._for_application(message)
        if wanted is None:
            return
        request = self._requests.get(message.parent) if message.parent else None
        if request is None or not matches_pattern(message.envelope.sender, request):
            happened.append(wanted)
            return
        assert message.parent is not None
        del self._requests[message.parent]
        self._inbox.ack(message.envelope.id)
        happened.append(Replied(message.parent, message))

    def _for_application(self, message: frames.Message) -> frames.Message | None:
        if not self._inbox.take(message.envelope.id):
            return None
        if self.block_list.keeps_away(message.envelope.sender):
            self._inbox.ack(message.envelope.id)
            return None
        return message

    def _fetched(self, answer: frames.FetchedMessages, happened: list[SessionEvent]) -> None:
        wanted = [one for one in answer.messages if self._for_application(one) is not None]
        if self._outbox.answered(answer.ref) is None:
            for one in wanted:  # nobody waits: the relay may hand them out again
                self.nack(one.envelope.id, 0.0)
            return
        happened.append(Fetched(answer.ref, wanted, len(answer.messages)))

    def _sent(self, sent: frames.SendResult, happened: list[SessionEvent]) -> None:
        if self._outbox.answered(sent.ref) is None:
            return
        result = PublishResult(
            message_id=sent.message_id,
            delivered_to=sent.delivered_to,
            rejected=sent.rejected,
            retry_after_ms=sent.retry_after_ms,
            mailbox_pressure=sent.mailbox_pressure,
        )
        happened.append(Answered(sent.ref, result))

    def _failed(self, error: frames.Error, happened: list[SessionEvent]) -> None:
        if error.fatal:
            self._last_error = error
        if error.ref is None:
            happened.append(error)
        elif self._outbox.answered(error.ref) is not None:
            happened.append(OperationFailed(error.ref, rejection(error)))


def _too_large(size: int | None, limits: Limits) -> InvalidMessage:
    much = "more" if size is None else f"{size:,} bytes"
    return InvalidMessage(
        f"too large for the relay: {much}, where it takes {limits.frame_max_bytes:,} in one frame"
    )
