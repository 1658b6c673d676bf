"""Sessions without sockets: a seat is one connected agent, and reads only when it is told to."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.harness.listening_relay import served_settings
from tests.server.sessions.agents import payload_of
from waypost import PublishResult, Relay
from waypost.relay.clock import Clock
from waypost.relay.delivery.drafts import Draft
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.server import open_context
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.server.sessions.session import Session
from waypost.wire import frames
from waypost.wire.frames import CODECS, JSON_PROTOCOL, FromAgent, FromRelay


class Seat:
    """One connected agent."""

    def __init__(self, room: "Room", session: Session, protocol: str, dismissed: list[str]) -> None:
        self.session = session
        self.dismissed = dismissed
        self._room = room
        self._codec = CODECS[protocol]
        self._refs = 0

    async def read(self) -> list[FromRelay]:
        """Everything that is there for it once the relay is quiet."""
        await self._room.quiet()
        read: list[FromRelay] = []
        while len(self.session.outbox):
            taken = await self.session.outbox.take(256, 1 << 30)
            if not taken:
                break  # it overflowed
            read += self._codec.from_relay(self._codec.encode(taken))
        return read

    async def read_messages(self) -> list[frames.Message]:
        """The messages among it; the rest is thrown away."""
        return [one for one in await self.read() if isinstance(one, frames.Message)]

    def say(self, *operations: FromAgent) -> None:
        self.session.handle(operations)

    def ack(self, messages: Iterable[frames.Message]) -> None:
        self.say(frames.Ack(ids=[one.envelope.id for one in messages]))

    async def send(self, subject: str, payload: object, **more: Any) -> list[FromRelay]:
        """The answers to one send; what else is there is thrown away."""
        ref = self.put(subject, payload, **more)
        return [one for one in await self.read() if getattr(one, "ref", None) == ref]

    def put(self, subject: str, payload: object, **more: Any) -> int:
        self._refs += 1
        form: Any = msgspec.json if self._codec.is_text else msgspec.msgpack
        raw = msgspec.Raw(form.encode(payload))
        self.say(frames.Send(ref=self._refs, subject=subject, payload=raw, **more))
        return self._refs

    def leave(self) -> None:
        self.session.end()


class Room:
    """A relay with everything that serving it needs, except a socket."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context

    @property
    def relay(self) -> Relay:
        return self.context.relay

    def sit(
        self,
        subject: str = "agent.a",
        *,
        receive: str = "push",
        protocol: str = JSON_PROTOCOL,
        limits: DeliveryLimits | None = None,
        show_pressure: bool = False,
    ) -> Seat:
        """Connect `subject`."""
        options = self.context.options
        dismissed: list[str] = []
        session = Session(
            self.context.hub,
            self.relay,
            subject,
            receive=receive,
            codec=CODECS[protocol],
            limits=limits or DeliveryLimits(options.batch, options.unconfirmed_max),
            show_pressure=show_pressure,
            on_dismissed=lambda code, reason: dismissed.append(reason),
        )
        session.start()
        return Seat(self, session, protocol, dismissed)

    def store(self, count: int, *, to: str = "agent.a", first: int = 0) -> None:
        """`count` messages with the payloads `first`, `first + 1`, … from senders of their own."""
        for number in range(first, first + count):
            result = self.publish(number, to=to, sender=f"agent.sender-{number // 20}")
            assert result.delivered_to == 1, result

    def publish(
        self, payload: object, *, to: str = "agent.a", sender: str = "agent.b", **more: Any
    ) -> PublishResult:
        return self.relay.submit(Draft(to, payload, sender=sender, **more))

    async def quiet(self) -> None:
        """Everything is on disk, and whoever waited for that knows."""
        for _ in range(3):
            await self.relay.idle()
            await asyncio.sleep(0)


class House:
    """Opens rooms on one data directory, one after the other."""

    def __init__(self, data: Path, clock: Clock) -> None:
        self.data = data
        self._clock = clock
        self._open: list[Any] = []

    async def open(self, options: ServeOptions | None = None, **fields: Any) -> Room:
        """The relay, after closing the one before; keywords are fields of `Settings`."""
        await self.close()
        settings = served_settings(**fields)
        opening = open_context(self.data, options, settings=settings, clock=self._clock)
        room = Room(await opening.__aenter__())
        self._open.append(opening)
        return room

    async def close(self) -> None:
        while self._open:
            await self._open.pop().__aexit__(None, None, None)


def numbers(operations: Iterable[FromRelay]) -> list[Any]:
    """Payloads of the messages among some operations."""
    return [payload_of(one) for one in operations if isinstance(one, frames.Message)]


def kinds(operations: Iterable[FromRelay]) -> list[str]:
    return [type(one).__name__ for one in operations]
