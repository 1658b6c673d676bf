"""Random frames: the state of the relay must stay the fold of its journal.

2,000 frames at a time; WAYPOST_FUZZ_FRAMES sets another number, WAYPOST_SEED the choices.
"""

import asyncio
import gc
import os
import random
from typing import Any

import msgspec
import pytest

from tests.faults.plain_journal import add_up_directory
from tests.faults.seeds import seeded
from tests.model_based.agreement import assert_memory_is
from tests.server.sessions.memory_server import MemoryServer, ServerLauncher
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.transports import ConnectionEnded, MemoryTransport
from waypost.client.identity import Identity
from waypost.server import websocket
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

FRAMES = int(os.environ.get("WAYPOST_FUZZ_FRAMES", "2000"))
SUBJECTS = [f"agent.{name}" for name in "abcd"]
STRANGE_NUMBERS = [None, True, -1, 0, 1, 2**53, 2**63, 2**70, -(2**63), 0.5, 1e308]
STRANGE_TEXTS = ["", "x", "agent.a", "agent.>", "_relay", "\x00", "ü" * 40, "../..", "\U0001f4a9"]
STRANGE_STRUCTURES = [[], {}, [[]], [1, "x"], {"a": 1}, {"op": "ack"}]
STRANGE = [*STRANGE_NUMBERS, *STRANGE_TEXTS, *STRANGE_STRUCTURES]


class Fuzzer:
    """Generates valid frames, almost valid frames and noise."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.seen_ids = ["x"]

    def frame(self, is_text: bool) -> str | bytes:
        chance = self._chance
        encode = msgspec.json.encode if is_text else msgspec.msgpack.encode
        if chance.random() < 0.1:
            return chance.randbytes(chance.randrange(60))
        count = chance.choice((1, 1, 1, 2, 5, 40, 300))
        operations = [self._operation() for _ in range(count)]
        try:
            encoded = encode(operations if count > 1 else operations[0])
        except OverflowError:  # too large for MessagePack
            encoded = b"\xc1"
        if chance.random() < 0.2:
            encoded = self._mutated(encoded)
        if is_text and chance.random() < 0.9:
            return encoded.decode(errors="replace")
        return encoded

    def _operation(self) -> Any:
        chance = self._chance
        kind = chance.choice(("send", "send", "ack", "ack", "nack", "fetch", "signal", "auth", "?"))
        operation: dict[str, Any] = {"op": kind, **getattr(self, f"_{kind}", dict)()}
        if chance.random() < 0.1:
            operation[chance.choice((*operation, "more"))] = chance.choice(STRANGE)
        if chance.random() < 0.05:
            del operation[chance.choice(list(operation))]
        return operation if chance.random() < 0.98 else chance.choice(STRANGE)

    def _send(self) -> dict[str, Any]:
        chance = self._chance
        fields: dict[str, Any] = {
            "ref": chance.randrange(1000),
            "subject": chance.choice((*SUBJECTS, "agent.*", "agent.never-here")),
            "payload": chance.choice((*STRANGE, "x" * chance.randrange(6000))),
        }
        if chance.random() < 0.2:
            fields["message_id"] = chance.choice(self.seen_ids)
        if chance.random() < 0.1:
            fields["budget"] = {chance.choice(("ttl", "max_hops", "?")): chance.choice(STRANGE)}
        if chance.random() < 0.1:
            budget = {"max_hops": 5, "ttl": chance.choice((1, 2**52)), "call_budget_remaining": 9}
            fields["parent"] = {"id": chance.choice(self.seen_ids), "budget": budget}
        return fields

    def _ids(self) -> list[str]:
        return self._chance.choices(self.seen_ids, k=self._chance.randrange(8))

    def _ack(self) -> dict[str, Any]:
        return {"ids": self._ids()}

    def _nack(self) -> dict[str, Any]:
        return {"ids": self._ids(), "delay": self._chance.choice((0, 0, 0.001, 100))}

    def _fetch(self) -> dict[str, Any]:
        chance = self._chance
        return {"ref": 1, "limit": chance.randrange(1, 20), "wait": chance.choice((0, 0.001))}

    def _signal(self) -> dict[str, Any]:
        signal = {
            "type": "typing",
            "state": "x",
            "endpoint_subject": "agent.a",
            "timestamp": "2026-01-01T00:00:00Z",
            "data": self._chance.choice(STRANGE),
        }
        return {"subject": self._chance.choice(SUBJECTS), "signal": signal}

    def _auth(self) -> dict[str, Any]:
        return {"subject": "agent.a", "public_key": "x", "signature": "x"}

    def _mutated(self, encoded: bytes) -> bytes:
        chance, content = self._chance, bytearray(encoded)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(content) + 1)
            end = at + chance.randrange(4)
            content[at:end] = chance.choice((b"", chance.randbytes(2), content[:9]))
        return bytes(content)


class Flock:
    """Connect agents that send fuzzed frames, read, and disconnect."""

    def __init__(self, server: MemoryServer, chance: random.Random) -> None:
        self._room = server
        self._chance = chance
        self._keys = {subject: Identity.new(subject) for subject in SUBJECTS}
        self._there: dict[str, RawAgent] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self.fuzzer = Fuzzer(chance)

    async def send_one(self) -> None:
        chance = self._chance
        subject = chance.choice(SUBJECTS)
        agent = self._there.get(subject)
        if agent is None:
            agent = await self._come(subject)
        assert isinstance(agent.transport, MemoryTransport)
        agent.transport.put(self.fuzzer.frame(agent.codec.is_text))
        await asyncio.sleep(0)
        if agent.transport.task.done() or chance.random() < 0.01:
            await self._go(subject)

    async def disconnect(self) -> None:
        for subject in list(self._there):
            await self._go(subject)

    async def _come(self, subject: str) -> RawAgent:
        protocol = self._chance.choice((JSON_PROTOCOL, MSGPACK_PROTOCOL))
        agent = RawAgent(MemoryTransport(self._room.context, protocol), protocol)
        receive = self._chance.choice(("push", "pull"))
        await agent.authenticate(self._keys[subject], receive=receive)
        self._there[subject] = agent
        self._readers[subject] = asyncio.create_task(self._read(agent))
        return agent

    async def _go(self, subject: str) -> None:
        await self._there.pop(subject).disconnect()
        self._readers[subject].cancel()
        await asyncio.wait([self._readers.pop(subject)])

    async def _read(self, agent: RawAgent) -> None:
        ids = self.fuzzer.seen_ids
        try:
            while True:
                for one in agent.codec.from_relay(await agent.transport.read()):
                    if isinstance(one, frames.Message):
                        ids.append(one.envelope.id)
                    elif isinstance(one, frames.FetchedMessages):
                        ids += [message.envelope.id for message in one.messages]
                del ids[:-200]
        except ConnectionEnded:
            pass


async def test_no_frame_breaks_the_relay_or_leaks_memory(
    launcher: ServerLauncher,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(asyncio, "sleep", _without_delay(asyncio.sleep))
    with seeded() as chance:
        server = await launcher.open()
        tasks_before = len(asyncio.all_tasks())
        flock = Flock(server, chance)
        for _ in range(FRAMES):
            await flock.send_one()
            if chance.random() < 0.05:
                clock.advance_ms(chance.randrange(5_000))
        await flock.disconnect()
        await server.wait_until_idle()
        assert [one for one in caplog.records if one.levelno >= 40] == []
        assert len(server.context.hub) == 0
        assert server.relay._runtime.ledger.state.leased() == [], "held for nobody"
        gc.collect()
        assert len(asyncio.all_tasks()) == tasks_before
        total = add_up_directory(launcher.data)
        assert_memory_is(server.relay, total, server.relay._runtime.ledger.now_us() // 1000)
        assert any(total.accepted), "nothing got through: this tests nothing"
        assert any(total.acked)


def _without_delay(sleep: Any) -> Any:
    """Switch off the slow reading of rejected floods."""

    async def at_once(delay: float, *more: Any) -> None:
        await sleep(0)

    return at_once
