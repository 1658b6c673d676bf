"""Signals: emitted to current listeners, and never written to disk."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.relay.observing import tree
from waypost import InvalidInput, InvalidMessage, InvalidSubject, Relay, Signal, SignalType
from waypost.policy.bounds import signal_listeners_max

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def typing(state: str = "active", data: Any = None) -> Signal:
    return Signal(
        type=SignalType.TYPING, state=state, endpoint_subject="agent.b", timestamp=NOW, data=data
    )


async def test_a_listener_gets_the_signal_and_its_subject(relay: Relay) -> None:
    heard: list[tuple[str, Signal]] = []
    relay.on_signal("agent.*", lambda subject, signal: heard.append((subject, signal)))
    assert relay.signal("agent.a", typing(data={"n": 1})) == 1
    assert heard == [("agent.a", typing(data={"n": 1}))]


@pytest.mark.parametrize(
    ("pattern", "hears"),
    [
        ("agent.a", True),
        ("agent.*", True),
        (">", True),
        ("agent.b", False),
        ("agent.a.deep", False),
        ("*", False),
    ],
)
async def test_a_listener_gets_the_signals_that_match_its_pattern(
    relay: Relay, pattern: str, hears: bool
) -> None:
    heard: list[str] = []
    relay.on_signal(pattern, lambda subject, signal: heard.append(subject))
    relay.signal("agent.a", typing())
    assert bool(heard) is hears


async def test_every_listener_hears_the_same_signal_in_the_order_they_came(
    relay: Relay,
) -> None:
    heard: list[str] = []
    for name, pattern in (("one", ">"), ("two", "agent.a"), ("three", "agent.*")):
        relay.on_signal(pattern, lambda subject, signal, name=name: heard.append(name))
    assert relay.signal("agent.a", typing()) == 3
    assert heard == ["one", "two", "three"]


async def test_a_removed_listener_gets_no_more_signals(relay: Relay) -> None:
    heard: list[str] = []
    stop = relay.on_signal("agent.a", lambda subject, signal: heard.append(subject))
    relay.signal("agent.a", typing())
    stop()
    stop()
    assert relay.signal("agent.a", typing()) == 0
    assert len(heard) == 1


async def test_a_raising_listener_does_not_affect_others(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fail(subject: str, signal: Signal) -> None:
        raise ValueError("deaf")

    relay.on_signal("agent.a", fail)
    relay.on_signal("agent.a", lambda subject, signal: heard.append(subject))
    with caplog.at_level(logging.ERROR, "waypost.relay"):
        relay.signal("agent.a", typing())
    assert heard == ["agent.a"]
    assert "deaf" in caplog.text


async def test_a_signal_needs_no_endpoint_and_makes_no_message(relay: Relay) -> None:
    assert relay.signal("agent.nobody", typing()) == 0
    assert relay.metrics().total_messages == 0


async def test_signals_never_touch_the_disk(relay: Relay, data: Path) -> None:
    await relay.idle()
    before = tree(data)
    heard: list[str] = []
    relay.on_signal(">", lambda subject, signal: heard.append(subject))
    for number in range(50):
        relay.signal("agent.a", typing(data={"n": number}))
    await relay.idle()
    assert len(heard) == 50
    assert tree(data) == before


async def test_a_listener_may_send_a_signal_itself(relay: Relay) -> None:
    heard: list[str] = []

    def answer(subject: str, signal: Signal) -> None:
        heard.append(subject)
        if subject == "agent.a":
            relay.signal("agent.b", typing("idle"))

    relay.on_signal("agent.*", answer)
    relay.signal("agent.a", typing())
    assert heard == ["agent.a", "agent.b"]


@pytest.mark.parametrize("subject", ["", "agent.*", "a..b", "agent a", None])
async def test_a_signal_is_emitted_to_a_subject_not_to_a_pattern(
    relay: Relay, subject: Any
) -> None:
    with pytest.raises(InvalidSubject):
        relay.signal(subject, typing())


async def test_listening_to_an_invalid_pattern_is_rejected(relay: Relay) -> None:
    with pytest.raises(InvalidSubject):
        relay.on_signal("agent.>.b", lambda subject, signal: None)


@pytest.mark.parametrize("bad", [None, {"type": "typing"}, typing(state=5), typing(data={1j: 1})])
async def test_an_invalid_signal_is_rejected_and_not_emitted(relay: Relay, bad: Any) -> None:
    heard: list[str] = []
    relay.on_signal(">", lambda subject, signal: heard.append(subject))
    with pytest.raises(InvalidMessage):
        relay.signal("agent.a", bad)
    assert heard == []


async def test_there_is_a_bound_on_listeners(relay: Relay) -> None:
    stops = [
        relay.on_signal("agent.a", lambda subject, signal: None)
        for _ in range(signal_listeners_max)
    ]
    with pytest.raises(InvalidInput, match="10,000"):
        relay.on_signal("agent.a", lambda subject, signal: None)
    stops[0]()
    relay.on_signal("agent.a", lambda subject, signal: None)


async def test_an_async_listener_runs_and_its_failure_affects_no_other(relay: Relay) -> None:
    heard: list[str] = []
    done = asyncio.Event()

    async def fail(subject: str, signal: Signal) -> None:
        raise RuntimeError("deaf")

    async def listen(subject: str, signal: Signal) -> None:
        await asyncio.sleep(0)
        heard.append(subject)
        done.set()

    relay.on_signal(">", fail)
    relay.on_signal(">", listen)
    assert relay.signal("agent.a", typing()) == 2
    await asyncio.wait_for(done.wait(), 60)
    assert heard == ["agent.a"]
