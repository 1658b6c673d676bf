"""A minimal relay behind a link that breaks: the oracle of the session.

It keeps the promises of a real relay: messages in order until they are acked, all unacked messages
again on each connection, at most `WINDOW` unacked messages in flight, each id stored once.
"""

from collections import deque

from tests.client.session_harness import SessionHarness, message, prove, welcome
from waypost.client.protocol.events import Answered
from waypost.wire import frames

WINDOW = 4


class FlakyLink:
    """One session, one relay, one link, and one application that records what it gets."""

    def __init__(self) -> None:
        self.harness = SessionHarness()
        # The relay
        self.mailbox: list[str] = []
        self.in_flight: set[str] = set()
        self.stored: list[str] = []
        self.mail = 0
        # The link
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.is_connected = False
        self.is_welcomed = False
        # The application
        self.unanswered: dict[int, str] = {}
        self.answers: list[str] = []
        self.held: list[str] = []
        self.emitted: list[str] = []
        self.acked: list[str] = []
        self.returned: list[str] = []

    # The link

    def connect(self) -> None:
        if not self.is_connected:
            self.is_connected = True
            self.harness.session.connected()
            self._send_frame(frames.Challenge(nonce="n"))

    def reconnect(self) -> None:
        """Connect, and stay connected until the welcome."""
        self.connect()
        for _ in range(2):
            self.flow()

    def drop(self) -> None:
        """Disconnect; frames in flight are lost."""
        if self.is_connected:
            self.is_connected = self.is_welcomed = False
            self.up.clear()
            self.down.clear()
            self.in_flight.clear()
            self.harness.drop()

    def write(self) -> None:
        """Let the session write one frame, if connected."""
        if self.is_connected and (frame := self.harness.session.next_frame()) is not None:
            self.up.append(frame)

    def carry_up(self) -> None:
        if self.up:
            for operation in self.harness.codec.from_agent(self.up.popleft()):
                self._handle(operation)

    def carry_down(self) -> None:
        if not self.down:
            return
        for event in self.harness.session.received(self.down.popleft(), 0):
            if isinstance(event, frames.Message):
                self.held.append(event.envelope.id)
                self.emitted.append(event.envelope.id)
            elif isinstance(event, Answered):
                self.answers.append(self.unanswered.pop(event.ref))

    def flow(self) -> None:
        """Carry one frame in each direction."""
        self.write()
        self.carry_up()
        self.carry_down()

    # The relay

    def new_message(self) -> None:
        self.mail += 1
        self.mailbox.append(f"mail-{self.mail}")
        self._deliver()

    def lease_times_out(self) -> None:
        """Deliver everything again on the same connection."""
        self.in_flight.clear()
        self._deliver()

    def _handle(self, operation: frames.FromAgent) -> None:
        match operation:
            case frames.Auth():
                assert operation == prove("n")
                self.is_welcomed = True
                self._send_frame(welcome(operations_max=3))
            case frames.Send(ref=ref, message_id=str(message_id)):
                if message_id not in self.stored:
                    self.stored.append(message_id)
                self._send_frame(frames.SendResult(ref=ref, message_id=message_id, delivered_to=1))
            case frames.Ack(ids=ids):
                self.mailbox = [one for one in self.mailbox if one not in ids]
                self.in_flight -= set(ids)
            case frames.Nack(ids=ids):
                self.in_flight -= set(ids)
            case _:
                raise AssertionError(f"unexpected operation: {operation}")
        self._deliver()

    def _deliver(self) -> None:
        if not self.is_welcomed:
            return
        for one in self.mailbox:
            if one not in self.in_flight and len(self.in_flight) < WINDOW:
                self.in_flight.add(one)
                self._send_frame(message(one))

    def _send_frame(self, operation: frames.FrameOperation) -> None:
        self.down.append(self.harness.codec.encode(operation))

    # The application

    def send(self) -> None:
        ref, message_id = self.harness.send()
        self.unanswered[ref] = message_id

    def ack(self) -> None:
        if self.held:
            self.acked.append(self.held.pop(0))
            self.harness.session.ack(self.acked[-1])

    def nack(self) -> None:
        if self.held:
            self.returned.append(self.held.pop(0))
            self.harness.session.nack(self.returned[-1], 0.0)

    def release(self) -> None:
        if self.held:
            self.returned.append(self.held.pop(0))
            self.harness.session.release(self.returned[-1])

    def run_until_idle(self) -> None:
        """Keep the link up and ack everything until nothing moves."""
        self.drop()  # released messages are delivered again on a new connection
        self.connect()
        moved = True
        while moved:
            before = self._progress()
            for _ in range(20):
                self.flow()
                self.ack()
                self._deliver()
            moved = before != self._progress() or bool(self.up or self.down)

    def _progress(self) -> tuple[int, ...]:
        return len(self.emitted), len(self.answers), len(self.acked), len(self.mailbox)
