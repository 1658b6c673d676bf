"""An agent that says exactly what it is told to, and does nothing by itself."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tests.server.sessions.transports import PATIENCE_S, HungUp, Line, PretendedLine
from waypost.client.identity import Identity
from waypost.wire import frames
from waypost.wire.frames import CODECS, JSON_PROTOCOL, Codec, FrameOperation, FromRelay

Op = TypeVar("Op")


class RawAgent:
    """The agent's end of a connection; operations come out one by one."""

    def __init__(self, line: Line, protocol: str = JSON_PROTOCOL) -> None:
        self.line = line
        self.codec: Codec = CODECS[protocol]
        self._read: list[FromRelay] = []
        self._refs = 0

    async def say(self, *operations: FrameOperation) -> None:
        """All of them in one frame."""
        await self.line.write(self.frame(operations))

    def frame(self, operations: Sequence[FrameOperation]) -> str | bytes:
        encoded = self.codec.encode(operations[0] if len(operations) == 1 else operations)
        return encoded.decode() if self.codec.is_text else encoded

    async def next(self) -> FromRelay:
        """The next operation; raises `HungUp` at the end."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._read:
                self._read = self.codec.from_relay(await self.line.read())
        return self._read.pop(0)

    async def expect(self, kind: type[Op]) -> Op:
        """The next operation, which must be of this kind."""
        found = await self.next()
        assert isinstance(found, kind), found
        return found

    async def until(self, kind: type[Op]) -> Op:
        """The next operation of this kind; others before it are skipped."""
        while not isinstance(found := await self.next(), kind):
            pass
        return found

    async def end(self) -> HungUp:
        """How the relay ends it; what comes before is skipped."""
        try:
            while True:
                await self.next()
        except HungUp as end:
            return end

    async def log_in(self, identity: Identity, **more: Any) -> frames.Welcome:
        challenge = await self.expect(frames.Challenge)
        await self.say(identity.prove(challenge.nonce, self.line.origin, **more))
        return await self.expect(frames.Welcome)

    async def send(
        self, subject: str, payload: object, **more: Any
    ) -> frames.SendResult | frames.Error:
        """Send, and give the answer; other operations before it are skipped."""
        ref = await self.begin_send(subject, payload, **more)
        while True:
            answer = await self.next()
            if isinstance(answer, frames.SendResult | frames.Error) and answer.ref == ref:
                return answer

    async def begin_send(self, subject: str, payload: object, **more: Any) -> int:
        self._refs += 1
        form: Any = msgspec.json if self.codec.is_text else msgspec.msgpack
        raw = msgspec.Raw(form.encode(payload))
        await self.say(frames.Send(ref=self._refs, subject=subject, payload=raw, **more))
        return self._refs

    async def ack(self, *messages: frames.Message) -> None:
        await self.say(frames.Ack(ids=[one.envelope.id for one in messages]))

    async def leave(self) -> None:
        await self.line.hang_up()


def payload_of(message: frames.Message) -> Any:
    """What was sent, whichever way it came."""
    found = message.envelope.payload
    return msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found


def rejected_with(answer: FromRelay) -> str:
    """The one reason in an answer to a send."""
    assert isinstance(answer, frames.SendResult), answer
    (rejection,) = answer.rejected
    return str(rejection.reason)


async def connect(line: Line, identity: Identity, **more: Any) -> RawAgent:
    """An agent that is let in and has been told how much waits."""
    agent = RawAgent(line, more.pop("protocol", JSON_PROTOCOL))
    await agent.log_in(identity, **more)
    await agent.expect(frames.QueueStatus)
    return agent


def task_of(agent: RawAgent) -> "asyncio.Task[None]":
    """The relay's side of a pretended connection."""
    assert isinstance(agent.line, PretendedLine)
    return agent.line.task
