"""A server without sockets: agents are sessions that read only when a test asks them to."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.harness.listening_relay import served_settings
from tests.server.sessions.raw_agent import payload_of
from waypost import PublishResult, Relay
from waypost.relay.clock import Clock
from waypost.relay.delivery.drafts import Draft
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.server import open_context
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.server.sessions.session import Session
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.frames import JSON_PROTOCOL, FromAgent, FromRelay


class ConnectedAgent:
    """One connected agent, driven through its session on the server."""

    def __init__(
        self,
        server: "MemoryServer",
        session: Session,
        protocol: str,
        dismissed: list[str],
    ) -> None:
        self.session = session
        self.dismissed = dismissed
        self._room = server
        self._codec = CODECS[protocol]
        self._refs = 0

    async def read(self) -> list[FromRelay]:
        """Wait until the relay is idle; return all operations in the outbox."""
        await self._room.wait_until_idle()
        read: list[FromRelay] = []
        while len(self.session.outbox):
            taken = await self.session.outbox.take(256, 1 << 30)
            if not taken:
                break  # it overflowed
            read += self._codec.from_relay(self._codec.encode(taken))
        return read

    async def read_messages(self) -> list[frames.Message]:
        """Return the messages in the outbox; drop other operations."""
        return [one for one in await self.read() if isinstance(one, frames.Message)]

    def send_frame(self, *operations: FromAgent) -> None:
        done = 0
        while done < len(operations):
            done += self.session.handle(operations[done:])

    def ack(self, messages: Iterable[frames.Message]) -> None:
        self.send_frame(frames.Ack(ids=[one.envelope.id for one in messages]))

    async def send(self, subject: str, payload: object, **more: Any) -> list[FromRelay]:
        """Send a message; return the responses to it and drop other operations."""
        ref = self.put(subject, payload, **more)
        return [one for one in await self.read() if getattr(one, "ref", None) == ref]

    def put(self, subject: str, payload: object, **more: Any) -> int:
        self._refs += 1
        form: Any = msgspec.json if self._codec.is_text else msgspec.msgpack
        raw = msgspec.Raw(form.encode(payload))
        self.send_frame(frames.Send(ref=self._refs, subject=subject, payload=raw, **more))
        return self._refs

    def disconnect(self) -> None:
        self.session.end()


class MemoryServer:
    """A relay and its server context, without a socket."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context

    @property
    def relay(self) -> Relay:
        return self.context.relay

    def connect(
        self,
        subject: str = "agent.a",
        *,
        receive: str = "push",
        protocol: str = JSON_PROTOCOL,
        limits: DeliveryLimits | None = None,
        shared: bool = False,
        show_pressure: bool = False,
    ) -> ConnectedAgent:
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
            shared=shared,
            show_pressure=show_pressure,
            on_dismissed=lambda code, reason: dismissed.append(reason),
        )
        session.start()
        return ConnectedAgent(self, session, protocol, dismissed)

    def store(self, count: int, *, to: str = "agent.a", first: int = 0) -> None:
        """Store `count` messages with the payloads `first`, `first + 1`, …; 20 from each sender."""
        for number in range(first, first + count):
            result = self.publish(number, to=to, sender=f"agent.sender-{number // 20}")
            assert result.delivered_to == 1, result

    def publish(
        self, payload: object, *, to: str = "agent.a", sender: str = "agent.b", **more: Any
    ) -> PublishResult:
        return self.relay.submit(Draft(to, payload, sender=sender, **more))

    async def wait_until_idle(self) -> None:
        """Wait until all events are on disk and their listeners have run."""
        for _ in range(3):
            await self.relay.idle()
            await asyncio.sleep(0)


class ServerLauncher:
    """Opens servers on one data directory, one at a time."""

    def __init__(self, data: Path, clock: Clock) -> None:
        self.data = data
        self._clock = clock
        self._open: list[Any] = []

    async def open(self, options: ServeOptions | None = None, **fields: Any) -> MemoryServer:
        """Close the open server and open the next; keywords are fields of `Settings`."""
        await self.close()
        settings = served_settings(**fields)
        opening = open_context(self.data, options, settings=settings, clock=self._clock)
        server = MemoryServer(await opening.__aenter__())
        self._open.append(opening)
        return server

    async def close(self) -> None:
        while self._open:
            await self._open.pop().__aexit__(None, None, None)


def numbers(operations: Iterable[FromRelay]) -> list[Any]:
    """Return the payloads of the messages among `operations`."""
    return [payload_of(one) for one in operations if isinstance(one, frames.Message)]


def kinds(operations: Iterable[FromRelay]) -> list[str]:
    return [type(one).__name__ for one in operations]
