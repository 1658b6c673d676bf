"""An agent that sends exactly the frames of the test and reacts to nothing."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tests.server.sessions.transports import PATIENCE_S, ConnectionEnded, MemoryTransport, Transport
from waypost.client.identity import Identity
from waypost.server.context import ServerContext
from waypost.wire import frames
from waypost.wire.codecs import CODECS, Codec
from waypost.wire.frames import JSON_PROTOCOL, FrameOperation, FromRelay

Op = TypeVar("Op")


class RawAgent:
    """The agent's end of a connection; returns operations one by one."""

    def __init__(self, transport: Transport, protocol: str = JSON_PROTOCOL) -> None:
        self.transport = transport
        self.codec: Codec = CODECS[protocol]
        self._read: list[FromRelay] = []
        self._refs = 0

    async def send_frame(self, *operations: FrameOperation) -> None:
        """Send all operations in one frame."""
        await self.transport.write(self.frame(operations))

    def frame(self, operations: Sequence[FrameOperation]) -> str | bytes:
        encoded = self.codec.encode(operations[0] if len(operations) == 1 else operations)
        return encoded.decode() if self.codec.is_text else encoded

    async def next(self) -> FromRelay:
        """Return the next operation; raise `ConnectionEnded` at the end."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._read:
                self._read = self.codec.from_relay(await self.transport.read())
        return self._read.pop(0)

    async def expect(self, kind: type[Op]) -> Op:
        """Return the next operation, which must be of this kind."""
        found = await self.next()
        assert isinstance(found, kind), found
        return found

    async def until(self, kind: type[Op]) -> Op:
        """Return the next operation of this kind; skip earlier ones."""
        while not isinstance(found := await self.next(), kind):
            pass
        return found

    async def end(self) -> ConnectionEnded:
        """Return how the relay ends the connection; skip operations before that."""
        try:
            while True:
                await self.next()
        except ConnectionEnded as end:
            return end

    async def authenticate(self, identity: Identity, **more: Any) -> frames.Welcome:
        challenge = await self.expect(frames.Challenge)
        await self.send_frame(identity.prove(challenge.nonce, self.transport.origin, **more))
        return await self.expect(frames.Welcome)

    async def send(
        self, subject: str, payload: object, **more: Any
    ) -> frames.SendResult | frames.Error:
        """Send a message and return the response; skip operations before it."""
        ref = await self.begin_send(subject, payload, **more)
        while True:
            answer = await self.next()
            if isinstance(answer, frames.SendResult | frames.Error) and answer.ref == ref:
                return answer

    async def begin_send(self, subject: str, payload: object, **more: Any) -> int:
        self._refs += 1
        form: Any = msgspec.json if self.codec.is_text else msgspec.msgpack
        raw = msgspec.Raw(form.encode(payload))
        await self.send_frame(frames.Send(ref=self._refs, subject=subject, payload=raw, **more))
        return self._refs

    async def ack(self, *messages: frames.Message) -> None:
        await self.send_frame(frames.Ack(ids=[one.envelope.id for one in messages]))

    async def disconnect(self) -> None:
        await self.transport.disconnect()


def payload_of(message: frames.Message) -> Any:
    """Return the decoded payload of a message in either encoding."""
    found = message.envelope.payload
    return msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found


def rejected_with(answer: FromRelay) -> str:
    """Return the only rejection reason in a response to a send."""
    assert isinstance(answer, frames.SendResult), answer
    (rejection,) = answer.rejected
    return str(rejection.reason)


async def connect(transport: Transport, identity: Identity, **more: Any) -> RawAgent:
    """Authenticate an agent and read its first queue status."""
    agent = RawAgent(transport, more.pop("protocol", JSON_PROTOCOL))
    await agent.authenticate(identity, **more)
    await agent.expect(frames.QueueStatus)
    return agent


def task_of(agent: RawAgent) -> "asyncio.Task[None]":
    """Return the task of the relay's side of a connection in memory."""
    assert isinstance(agent.transport, MemoryTransport)
    return agent.transport.task


async def enter(context: ServerContext, subject: str, protocol: str = JSON_PROTOCOL) -> RawAgent:
    """Connect an agent and read until it is live."""
    agent = await connect(
        MemoryTransport(context, protocol), Identity.new(subject), protocol=protocol
    )
    await agent.until(frames.Live)
    return agent


async def assert_works(agent: RawAgent) -> None:
    """Check that an agent can send and receive."""
    answer = await agent.send("agent.echo", "are you there?")
    assert isinstance(answer, frames.SendResult)
    assert answer.delivered_to == 1
