"""Signals between connected agents: authenticated, never stored."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.faults.plain_journal import committed
from tests.server.sessions.memory_server import MemoryServer, ServerLauncher, kinds, numbers
from waypost import AccessRule, Signal
from waypost.policy.bounds import outbox_max_operations
from waypost.policy.signal_limits import SignalsConfig
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL
from waypost.wire.payloads import SignalType

NO_LIMITS = SignalsConfig(max_per_window=1 << 40, max_per_pair=1 << 40, max_bytes=1 << 40)


def typing(data: Any = None) -> Signal:
    return Signal(
        type=SignalType.TYPING,
        state="started",
        endpoint_subject="agent.b",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        data=data,
    )


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_a_signal_reaches_a_connected_agent_with_its_authenticated_sender(
    server: MemoryServer, protocol: str
) -> None:
    agent, other = (
        server.connect(protocol=protocol),
        server.connect("agent.b"),
    )
    await agent.read()
    other.send_frame(frames.SendSignal(subject="agent.a", signal=typing({"n": 1})))
    assert await agent.read() == [
        frames.Signalled(subject="agent.a", signal=typing({"n": 1}), sender="agent.b")
    ]


async def test_a_signal_to_a_disconnected_agent_is_dropped_and_not_journaled(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open()
    other = server.connect("agent.b")
    await other.read()
    written = len(committed(launcher.data))
    other.send_frame(frames.SendSignal(subject="agent.a", signal=typing()))
    assert await other.read() == []
    assert len(committed(launcher.data)) == written
    assert await server.connect().read() == [
        frames.QueueStatus(pending=0),
        frames.Live(),
    ]


async def test_access_rules_apply_to_signals(server: MemoryServer) -> None:
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    await other.read()
    server.relay.access.add_rule(
        AccessRule(from_="agent.b", to="agent.a", action="deny", priority=1)
    )
    other.send_frame(frames.SendSignal(subject="agent.a", signal=typing()))
    (answer,) = await other.read()
    assert isinstance(answer, frames.Error)
    assert answer.reason == "access_denied"
    assert await agent.read() == []


@pytest.mark.parametrize("subject", ["_relay", "", "agent..a", "ägent.a"])
async def test_a_signal_to_an_invalid_subject_is_rejected(
    server: MemoryServer, subject: str
) -> None:
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    await other.read()
    other.send_frame(frames.SendSignal(subject=subject, signal=typing()))
    (answer,) = await other.read()
    assert isinstance(answer, frames.Error)
    assert answer.reason == "invalid"
    assert await agent.read() == []


async def test_a_slow_reader_loses_signals_long_before_its_connection(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(signals=NO_LIMITS)
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    for _ in range(outbox_max_operations * 2):
        other.send_frame(frames.SendSignal(subject="agent.a", signal=typing()))
    server.store(1)
    read = await agent.read()
    assert agent.dismissed == []
    assert kinds(read).count("Signalled") == outbox_max_operations // 2
    assert numbers(read) == [0]


async def test_large_signals_are_dropped_before_they_use_much_memory(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(signals=NO_LIMITS)
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    for _ in range(20):
        other.send_frame(frames.SendSignal(subject="agent.a", signal=typing("x" * 1_000_000)))
    assert kinds(await agent.read()).count("Signalled") == 5


async def test_a_signal_the_recipients_encoding_cannot_represent_is_dropped(
    server: MemoryServer,
) -> None:
    agent, other = (
        server.connect(protocol=MSGPACK_PROTOCOL),
        server.connect("agent.b"),
    )
    await agent.read()
    other.send_frame(frames.SendSignal(subject="agent.a", signal=typing(2**70)))
    other.send_frame(frames.SendSignal(subject="agent.a", signal=typing("next")))
    assert [one.signal.data for one in await agent.read()] == ["next"]


async def test_data_that_is_no_valid_payload_is_no_valid_signal(server: MemoryServer) -> None:
    agent, other = (
        server.connect(),
        server.connect("agent.b", protocol=MSGPACK_PROTOCOL),
    )
    await agent.read()
    await other.read()
    for data in ({(1, 2): 3}, deep(100)):
        other.send_frame(frames.SendSignal(subject="agent.a", signal=typing(data)))
        assert kinds(await other.read()) == ["Error"]
    assert await agent.read() == []


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested
