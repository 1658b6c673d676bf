"""Connected agents that acknowledge nothing: their messages return, and their connection ends."""

from collections.abc import Callable
from pathlib import Path

import httpx

from tests.relay.observing import events
from tests.server.conftest import ServeRelay
from tests.server.sessions.memory_server import MemoryServer, ServerLauncher, kinds, numbers
from tests.server.sessions.raw_agent import RawAgent, connect, payload_of
from tests.server.sessions.transports import MemoryTransport
from waypost import Settings
from waypost.client.identity import Identity
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL

Identities = Callable[[str], Identity]
TIMEOUT_MS = Settings().lease_timeout_ms
CLOSING_MS = Settings().close_stuck_after_ms


async def test_an_agent_that_acks_nothing_is_marked_and_notified(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(3)
    agent = server.connect()
    assert numbers(await agent.read()) == [0, 1, 2]
    clock.advance_ms(TIMEOUT_MS)
    (error,) = await agent.read()
    assert isinstance(error, frames.Error)
    assert (error.reason, error.fatal, error.error[:6]) == ("stuck", False, "stuck:")
    assert agent.session.stuck_since_us == clock()
    assert (agent.session.unconfirmed, server.context.hub.stuck_count()) == (0, 1)


async def test_its_messages_are_read_by_another_consumer(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(3)
    agent = server.connect()
    await agent.read()
    assert server.context.hub.receives_pushes("agent.a")
    clock.advance_ms(TIMEOUT_MS)
    assert not server.context.hub.receives_pushes("agent.a")
    assert [one.payload for one in await server.relay.lease("agent.a")] == [0, 1, 2]


async def test_an_agent_that_works_through_its_queue_is_not_stuck(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(50)
    agent = server.connect()
    for message in await agent.read_messages():
        clock.advance_ms(TIMEOUT_MS - 1)
        agent.ack([message])
    assert not agent.session.stuck_since_us
    assert server.relay.inspect().counts["returned"] == 0


async def test_an_agent_extends_the_lease_of_its_message(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(1)
    agent = server.connect()
    (message,) = await agent.read_messages()
    agent.send_frame(frames.Extend(ids=[message.envelope.id], seconds=600))
    clock.advance_ms(599_000)
    assert not agent.session.stuck_since_us
    agent.ack([message])
    await server.wait_until_idle()
    assert server.relay.inspect().depth("agent.a") == 0


async def test_a_late_ack_counts_and_messages_follow_again(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(2)
    agent = server.connect()
    late, _ = await agent.read_messages()
    clock.advance_ms(TIMEOUT_MS)
    await agent.read()
    agent.ack([late])
    assert numbers(await agent.read()) == [1]
    assert not agent.session.stuck_since_us


async def test_a_stuck_agent_gets_no_new_messages_and_is_not_live(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(1)
    agent = server.connect()
    await agent.read()
    clock.advance_ms(TIMEOUT_MS)
    server.publish("new")
    assert kinds(await agent.read()) == ["Error"]


async def test_messages_that_are_only_shown_are_released_without_a_verdict(
    server: MemoryServer, clock: ManualClock, launcher: ServerLauncher
) -> None:
    server.store(2)
    await server.wait_until_idle()
    agent = server.connect(receive="pull")
    agent.send_frame(frames.Fetch(ref=1, release=True))
    await agent.read()
    clock.advance_ms(TIMEOUT_MS)
    await server.wait_until_idle()
    assert [one["uncounted"] for one in events(launcher.data, "returned")] == [True, True]


async def test_the_connection_of_a_stuck_agent_ends_with_a_code_of_its_own(
    server: MemoryServer, clock: ManualClock, identities: Identities, launcher: ServerLauncher
) -> None:
    server.store(1)
    await server.wait_until_idle()
    agent = await connect(MemoryTransport(server.context, JSON_PROTOCOL), identities("agent.a"))
    welcomed = await agent.until(frames.Message)
    clock.advance_ms(TIMEOUT_MS)
    clock.advance_ms(CLOSING_MS)
    end = await agent.end()
    assert (end.code, end.reason[:6]) == (frames.CLOSE_STUCK, "stuck:")
    await server.wait_until_idle()
    assert events(launcher.data, "session")[-1]["reason"].startswith("stuck:")
    again = await connect(MemoryTransport(server.context, JSON_PROTOCOL), identities("agent.a"))
    assert payload_of(await again.until(frames.Message)) == payload_of(welcomed)
    await again.disconnect()


async def test_an_agent_learns_the_timeout_when_it_connects(
    launcher: ServerLauncher, identities: Identities
) -> None:
    server = await launcher.open(lease_timeout_ms=7_000)
    agent = RawAgent(MemoryTransport(server.context, JSON_PROTOCOL))
    welcome = await agent.authenticate(identities("agent.a"))
    assert welcome.lease_timeout_ms == 7_000
    await agent.disconnect()


async def test_over_sockets_a_stuck_agent_shows_in_metrics_and_statistics(
    serve_relay: ServeRelay, tmp_path: Path
) -> None:
    relay = await serve_relay(lease_timeout_ms=50)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    await sender.send("agent.a", "for a worker that hangs")
    await agent.until(frames.Message)
    error = await agent.until(frames.Error)
    assert error.reason == "stuck"
    token = (tmp_path / "data" / "operator-token").read_text().strip()
    operator = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=relay.url, headers=operator) as client:
        metrics = (await client.get("/metrics")).text
        stats = (await client.get("/v1/stats")).json()
    assert "\nwaypost_stuck_connections 1.0\n" in metrics
    age = metrics.split("\nwaypost_oldest_unacknowledged_seconds ")[1].split("\n")[0]
    assert float(age) >= 0.05
    assert [bool(one["stuck_since_us"]) for one in stats["connected"]] == [True, False]
    assert stats["inboxes"][0]["oldest_us"] < stats["at_us"] - 50_000
