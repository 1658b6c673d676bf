"""Signals to patterns: within access rules, fan-out and rates, through a socket."""

import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.test_signal_limits import HOUR, signals_until_message, typing
from waypost import AccessRule
from waypost.policy.signal_limits import SignalsConfig
from waypost.wire import frames


async def connect(relay: SocketRelay, *names: str) -> list[RawAgent]:
    return [await relay.connect(f"agent.{name}") for name in names]


async def signal(agent: RawAgent, pattern: str) -> None:
    await agent.send_frame(frames.SendSignal(subject=pattern, signal=typing()))


async def received(sender: RawAgent, *agents: tuple[str, RawAgent]) -> list[int]:
    """Return how many signals each agent has got."""
    counts = []
    for name, agent in agents:
        await sender.begin_send(f"agent.{name}", "done")
        counts.append(await signals_until_message(agent))
    return counts


async def test_a_signal_to_a_pattern_reaches_each_connected_agent_that_matches(
    served: SocketRelay,
) -> None:
    sender, one, two, other = await connect(served, "boss", "team.one", "team.two", "other")
    await signal(sender, "agent.team.*")
    for name, agent in (("one", one), ("two", two)):
        found = await agent.until(frames.Signalled)
        assert (found.subject, found.sender) == (f"agent.team.{name}", "agent.boss")
    assert await received(sender, ("other", other)) == [0]


async def test_those_that_access_rules_deny_get_nothing(served: SocketRelay) -> None:
    sender, one, two = await connect(served, "boss", "team.one", "team.two")
    rule = AccessRule(from_="agent.boss", to="agent.team.two", action="deny", priority=1)
    served.context.relay.access.add_rule(rule)
    await signal(sender, "agent.team.*")
    await signal(sender, "agent.team.two")
    assert (await sender.until(frames.Error)).reason == "access_denied"
    served.context.relay.access.remove_rule("agent.boss", "agent.team.two")
    assert await received(sender, ("team.one", one), ("team.two", two)) == [1, 0]


async def test_a_signal_whose_recipients_are_all_denied_is_rejected(served: SocketRelay) -> None:
    sender, _ = await connect(served, "boss", "team.one")
    rule = AccessRule(from_="agent.boss", to="agent.team.>", action="deny", priority=1)
    served.context.relay.access.add_rule(rule)
    await signal(sender, "agent.team.*")
    assert (await sender.until(frames.Error)).reason == "access_denied"


async def test_a_pattern_that_matches_too_many_endpoints_is_rejected(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(max_fanout=2)
    sender, one, two = await connect(relay, "boss", "team.one", "team.two")
    await signal(sender, "agent.team.*")
    assert await received(sender, ("team.one", one), ("team.two", two)) == [1, 1]
    relay.context.relay.register_endpoint("agent.team.three")
    await signal(sender, "agent.team.*")
    problem = await sender.until(frames.Error)
    assert problem.reason == "fanout_exceeded"
    assert problem.error == "more than 2 endpoints match: use a narrower pattern (maxFanout)"
    assert await received(sender, ("team.one", one), ("team.two", two)) == [0, 0]


async def test_without_a_limit_of_the_fan_out_the_rate_is_one(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(max_fanout=0, signals=SignalsConfig(max_per_window=2))
    sender, _, _, _ = await connect(relay, "boss", "team.one", "team.two", "team.three")
    await signal(sender, "agent.team.*")
    problem = await sender.until(frames.Error)
    assert problem.reason == "fanout_exceeded"
    assert "more endpoints match than a sender may signal" in problem.error


async def test_where_no_sender_may_use_patterns_no_signal_may(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(pattern_senders="none")
    sender, _ = await connect(relay, "boss", "team.one")
    await signal(sender, "agent.team.*")
    problem = await sender.until(frames.Error)
    assert problem.reason == "access_denied"
    assert "patternSenders" in problem.error


async def test_a_signal_to_a_pattern_counts_for_each_of_its_recipients(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(signals=SignalsConfig(window_secs=HOUR, max_per_window=5))
    sender, one, two = await connect(relay, "boss", "team.one", "team.two")
    for _ in range(3):
        await signal(sender, "agent.team.*")
    problem = await sender.until(frames.Error)
    assert (problem.reason, problem.error) == (
        "rate_limited",
        f"signal dropped: at most 5 signals in {HOUR} s",
    )
    assert await received(sender, ("team.one", one), ("team.two", two)) == [2, 2]


async def test_a_pair_at_its_limit_is_left_out(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(signals=SignalsConfig(window_secs=HOUR, max_per_pair=2))
    sender, one, two = await connect(relay, "boss", "team.one", "team.two")
    for subject in ("agent.team.one", "agent.team.one", "agent.team.*"):
        await signal(sender, subject)
    assert await received(sender, ("team.one", one), ("team.two", two)) == [2, 1]


async def test_patterns_without_recipients_count_too(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(signals=SignalsConfig(window_secs=HOUR, max_per_window=2))
    [sender] = await connect(relay, "boss")
    for _ in range(3):
        await signal(sender, "agent.nowhere.>")
    assert (await sender.until(frames.Error)).reason == "rate_limited"


@pytest.mark.parametrize("pattern", ["_*", "_relay.>", "agent.>.x", "agent.*x", ""])
async def test_a_bad_pattern_is_rejected(served: SocketRelay, pattern: str) -> None:
    [sender] = await connect(served, "boss")
    await signal(sender, pattern)
    assert (await sender.until(frames.Error)).reason == "invalid"
