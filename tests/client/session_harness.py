"""A session without a socket: tests send it frames as the relay, and read the frames it writes."""

import itertools
from datetime import UTC, datetime

from waypost.client.message import Outgoing
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import SessionEvent
from waypost.client.protocol.session import Session
from waypost.policy.budgets import create_default_budget
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.envelopes import Envelope

NOW_MS = 1_700_000_000_000
ME = "agent.me"


def prove(nonce: str) -> frames.Auth:
    return frames.Auth(subject=ME, public_key="key", signature=f"signed {nonce}")


def welcome(
    frame_max_bytes: int = 1_000_000, operations_max: int = 256, unconfirmed_max: int = 256
) -> frames.Welcome:
    return frames.Welcome(
        subject=ME,
        token="token",
        token_expires_at=NOW_MS + 900_000,
        frame_max_bytes=frame_max_bytes,
        operations_max=operations_max,
        unconfirmed_max=unconfirmed_max,
    )


def message(
    message_id: str, payload: object = None, sender: str = "agent.other", parent: str | None = None
) -> frames.Message:
    envelope = Envelope(
        id=message_id,
        subject=ME,
        sender=sender,
        budget=create_default_budget(NOW_MS),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        payload=payload,
    )
    return frames.Message(envelope=envelope, parent=parent)


def sent(ref: int, message_id: str = "m", delivered_to: int = 1) -> frames.SendResult:
    return frames.SendResult(ref=ref, message_id=message_id, delivered_to=delivered_to)


class SessionHarness:
    """A session whose relay is the test."""

    def __init__(self, options: ClientOptions | None = None, *, random: float = 0.0) -> None:
        self.options = options or ClientOptions()
        self.codec = CODECS[self.options.protocol]
        counter = itertools.count(1)
        self.session = Session(
            prove,
            self.options,
            entropy=lambda size: next(counter).to_bytes(size),
            random=lambda: random,
        )

    def connect(self, limits: frames.Welcome | None = None) -> list[SessionEvent]:
        """Connect and welcome the session; consume its proof."""
        self.session.connected()
        self.receive_frame(frames.Challenge(nonce="nonce"))
        assert isinstance(self.written()[0], frames.Auth)
        return self.receive_frame(limits or welcome())

    def drop(self, code: int | None = 1006, after_ms: int = 0) -> int:
        return self.session.disconnected(NOW_MS + after_ms, code)

    def receive_frame(self, *operations: frames.FrameOperation) -> list[SessionEvent]:
        """Pass `operations` of the relay to the session in one frame; return its events."""
        frame = self.codec.encode(operations if len(operations) > 1 else operations[0])
        return self.session.received(frame, NOW_MS)

    def frames_written(self) -> list[bytes]:
        """Return every frame the session has to write."""
        return list(iter(self.session.next_frame, None))

    def written(self) -> list[frames.FromAgent]:
        """Return every operation the session has to write."""
        return [one for frame in self.frames_written() for one in self.codec.from_agent(frame)]

    def send(self, payload: object = None, subject: str = "agent.other") -> tuple[int, str]:
        """Queue a send; return its ref and id."""
        message_id = self.session.new_id(NOW_MS)
        wanted = Outgoing(subject=subject, payload=payload)
        return self.session.send(wanted, message_id), message_id
