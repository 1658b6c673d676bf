"""A relay in a few lines, at the other end of a wire that breaks: the oracle of the session.

It keeps what a real one promises: mail in order until it is confirmed, everything unconfirmed
again at each connection, no more than `WINDOW` ahead of confirmations, each id stored once.
"""

from collections import deque

from tests.client.session_harness import Talk, message, prove, welcome
from waypost.client.protocol.events import Answered
from waypost.wire import frames

WINDOW = 4


class Unsteady:
    """One session, one relay, one wire, one application that writes down what it sees."""

    def __init__(self) -> None:
        self.talk = Talk()
        # The relay
        self.mailbox: list[str] = []
        self.given_out: set[str] = set()
        self.stored: list[str] = []
        self.mail = 0
        # The wire
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.is_connected = False
        self.has_let_in = False
        # The application
        self.unanswered: dict[int, str] = {}
        self.answers: list[str] = []
        self.in_hand: list[str] = []
        self.handed: list[str] = []
        self.acked: list[str] = []
        self.given_back: list[str] = []

    # The wire

    def connect(self) -> None:
        if not self.is_connected:
            self.is_connected = True
            self.talk.session.connected()
            self._say(frames.Challenge(nonce="n"))

    def come_back(self) -> None:
        """A connection that holds until the session is let in."""
        self.connect()
        for _ in range(2):
            self.flow()

    def drop(self) -> None:
        """Whatever is on its way is gone."""
        if self.is_connected:
            self.is_connected = self.has_let_in = False
            self.up.clear()
            self.down.clear()
            self.given_out.clear()
            self.talk.drop()

    def write(self) -> None:
        """The session writes one frame, if there is a wire."""
        if self.is_connected and (frame := self.talk.session.next_frame()) is not None:
            self.up.append(frame)

    def carry_up(self) -> None:
        if self.up:
            for operation in self.talk.codec.from_agent(self.up.popleft()):
                self._asked(operation)

    def carry_down(self) -> None:
        if not self.down:
            return
        for happening in self.talk.session.received(self.down.popleft(), 0):
            if isinstance(happening, frames.Message):
                self.in_hand.append(happening.envelope.id)
                self.handed.append(happening.envelope.id)
            elif isinstance(happening, Answered):
                self.answers.append(self.unanswered.pop(happening.ref))

    def flow(self) -> None:
        """A moment in which nothing breaks."""
        self.write()
        self.carry_up()
        self.carry_down()

    # The relay

    def new_mail(self) -> None:
        self.mail += 1
        self.mailbox.append(f"mail-{self.mail}")
        self._give_out()

    def lease_times_out(self) -> None:
        """The relay delivers again though the connection is fine."""
        self.given_out.clear()
        self._give_out()

    def _asked(self, operation: frames.FromAgent) -> None:
        match operation:
            case frames.Auth():
                assert operation == prove("n")
                self.has_let_in = True
                self._say(welcome(operations_max=3))
            case frames.Send(ref=ref, message_id=str(message_id)):
                if message_id not in self.stored:
                    self.stored.append(message_id)
                self._say(frames.SendResult(ref=ref, message_id=message_id, delivered_to=1))
            case frames.Ack(ids=ids):
                self.mailbox = [one for one in self.mailbox if one not in ids]
                self.given_out -= set(ids)
            case frames.Nack(ids=ids):
                self.given_out -= set(ids)
            case _:
                raise AssertionError(f"nobody asked for {operation}")
        self._give_out()

    def _give_out(self) -> None:
        if not self.has_let_in:
            return
        for one in self.mailbox:
            if one not in self.given_out and len(self.given_out) < WINDOW:
                self.given_out.add(one)
                self._say(message(one))

    def _say(self, operation: frames.FrameOperation) -> None:
        self.down.append(self.talk.codec.encode(operation))

    # The application

    def send(self) -> None:
        ref, message_id = self.talk.send()
        self.unanswered[ref] = message_id

    def ack(self) -> None:
        if self.in_hand:
            self.acked.append(self.in_hand.pop(0))
            self.talk.session.ack(self.acked[-1])

    def nack(self) -> None:
        if self.in_hand:
            self.given_back.append(self.in_hand.pop(0))
            self.talk.session.nack(self.given_back[-1], 0.0)

    def release(self) -> None:
        if self.in_hand:
            self.given_back.append(self.in_hand.pop(0))
            self.talk.session.release(self.given_back[-1])

    def settle(self) -> None:
        """The wire holds, the application does its work, until nothing moves."""
        self.drop()  # what was let go comes again with a new connection
        self.connect()
        moved = True
        while moved:
            before = (len(self.handed), len(self.answers), len(self.acked), len(self.mailbox))
            for _ in range(20):
                self.flow()
                self.ack()
                self._give_out()
            moved = before != (
                *(len(self.handed), len(self.answers), len(self.acked), len(self.mailbox)),
            )
            moved = moved or bool(self.up or self.down)
