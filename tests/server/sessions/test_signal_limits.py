"""Limits of signals between agents, through a socket."""

from datetime import UTC, datetime

import httpx

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost import Signal
from waypost.policy.signal_limits import SignalsConfig, SignalWindows
from waypost.wire import frames
from waypost.wire.payloads import SignalType

HOUR = 3600


def typing(state: str = "started") -> Signal:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Signal(type=SignalType.TYPING, state=state, endpoint_subject="agent.b", timestamp=at)


async def send_signals(agent: RawAgent, subject: str, count: int) -> None:
    for _ in range(count):
        await agent.send_frame(frames.SendSignal(subject=subject, signal=typing()))


async def signals_until_message(agent: RawAgent) -> int:
    """Return how many signals arrived before the next message."""
    count = 0
    while not isinstance(got := await agent.next(), frames.Message):
        count += isinstance(got, frames.Signalled)
    return count


async def test_signals_to_one_agent_have_a_rate(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(signals=SignalsConfig(window_secs=HOUR, max_per_pair=3))
    sender, recipient, other = [await relay.connect(f"agent.{name}") for name in "abc"]
    await send_signals(sender, "agent.b", 5)
    problem = await sender.until(frames.Error)
    assert problem.reason == "rate_limited"
    assert problem.error == f"signal dropped: at most 3 signals to one agent in {HOUR} s"
    await send_signals(sender, "agent.c", 1)
    for to in ("agent.b", "agent.c"):
        await sender.begin_send(to, "done")
    assert await signals_until_message(recipient) == 3
    assert await signals_until_message(other) == 1
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as client:
        metrics = (await client.get("/metrics")).text
    assert 'waypost_signals_total{outcome="dropped"} 2.0' in metrics
    for agent in (sender, recipient, other):
        await agent.disconnect()


async def test_signals_of_one_sender_have_a_rate(serve_relay: ServeRelay) -> None:
    limits = SignalsConfig(window_secs=HOUR, max_per_window=3, max_per_pair=2)
    relay = await serve_relay(signals=limits)
    sender, recipient = await relay.connect("agent.a"), await relay.connect("agent.b")
    await send_signals(sender, "agent.nowhere", 2)
    await send_signals(sender, "agent.b", 3)
    problem = await sender.until(frames.Error)
    assert problem.error == f"signal dropped: at most 3 signals in {HOUR} s"
    await sender.begin_send("agent.b", "done")
    assert await signals_until_message(recipient) == 1
    assert relay.context.hub.signals == {"admitted": 3, "dropped": 2}
    await sender.disconnect()
    await recipient.disconnect()


async def test_a_large_signal_is_rejected(served: SocketRelay) -> None:
    sender, recipient = await served.connect("agent.a"), await served.connect("agent.b")
    large = typing(state="x" * 4096)
    await sender.send_frame(frames.SendSignal(subject="agent.b", signal=large))
    problem = await sender.until(frames.Error)
    assert problem.reason == "invalid"
    assert "over the limit of 4,096 bytes (signals.maxBytes)" in problem.error
    await sender.begin_send("agent.b", "done")
    assert await signals_until_message(recipient) == 0
    await sender.disconnect()
    await recipient.disconnect()


def test_old_signals_are_forgotten() -> None:
    windows, limits = SignalWindows(), SignalsConfig(window_secs=1)
    for number in range(10_000):
        recipient = f"agent.{number}"
        assert windows.admit("agent.a", [recipient], number * 10, limits) == ([recipient], "")
    assert len(windows) < 3000
