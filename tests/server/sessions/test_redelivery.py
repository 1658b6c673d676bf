"""Agents that return their messages endlessly: over sockets, as anyone can."""

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.memory_server import MemoryServer, ServerLauncher, kinds, numbers
from tests.server.sessions.raw_agent import RawAgent, payload_of
from waypost import CircuitBreakerConfig
from waypost.client.identity import Identity
from waypost.policy.redelivery import RedeliveryConfig
from waypost.testing import ManualClock
from waypost.wire import frames

QUICK = RedeliveryConfig(max_deliveries=3, first_delay_ms=1)
SLOW = RedeliveryConfig(first_delay_ms=3_600_000, max_delay_ms=3_600_000)


async def connect(relay: SocketRelay, identity: Identity) -> RawAgent:
    agent = await relay.dial()
    await agent.authenticate(identity)
    return agent


async def dead_letters(relay: SocketRelay) -> list[str]:
    return [one.reason for one in await relay.context.relay.dead_letters("agent.a")]


async def test_a_message_that_is_nacked_forever_becomes_a_dead_letter(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(redelivery=QUICK)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    await sender.send("agent.a", "poison")
    for attempt in range(1, 4):
        message = await agent.until(frames.Message)
        assert message.envelope.attempt == attempt
        await agent.send_frame(frames.Nack(ids=[message.envelope.id], error="out of memory"))
    await sender.send("agent.a", "next")
    message = await agent.until(frames.Message)
    assert payload_of(message) == "next"
    assert await dead_letters(relay) == ["max deliveries exceeded (3/3): out of memory"]


async def test_nacks_cannot_grow_the_journal_quickly(serve_relay: ServeRelay) -> None:
    off = CircuitBreakerConfig(enabled=False)
    relay = await serve_relay(redelivery=SLOW, circuit_breaker=off)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    for number in range(10):
        await sender.send("agent.a", number)
    for _ in range(20):
        message = await agent.until(frames.Message)
        await agent.send_frame(frames.Nack(ids=[message.envelope.id]))
    await sender.send("agent.a", "end")
    message = await agent.until(frames.Message)
    assert payload_of(message) == "end"
    assert relay.context.relay.inspect().counts["leased"] == 21


async def test_reconnects_without_an_ack_end_in_a_dead_letter_and_keep_the_order(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(redelivery=QUICK)
    identity = Identity.new("agent.a")
    agent, sender = await connect(relay, identity), await relay.connect("agent.b")
    for number in range(3):
        await sender.send("agent.a", number)
    for rounds in range(3):
        await agent.disconnect()
        await eventually(lambda: not relay.context.hub.is_connected("agent.a"))
        agent = await connect(relay, identity)
        seen = [payload_of(await agent.until(frames.Message)) for _ in range(2)]
        assert seen == ([0, 1] if rounds < 2 else [1, 2])
    assert await dead_letters(relay) == ["max deliveries exceeded (3/3): the connection ended"]


async def test_a_stop_of_the_relay_does_not_count(serve_relay: ServeRelay) -> None:
    identity, once = Identity.new("agent.a"), RedeliveryConfig(max_deliveries=1)
    relay = await serve_relay(redelivery=once)
    agent, sender = await connect(relay, identity), await relay.connect("agent.b")
    await sender.send("agent.a", "kept")
    for _ in range(3):
        relay = await serve_relay(redelivery=once)
        agent = await connect(relay, identity)
        assert payload_of(await agent.until(frames.Message)) == "kept"
    assert await dead_letters(relay) == []


async def test_released_messages_do_not_become_dead_letters(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(redelivery=QUICK)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    await sender.send("agent.a", "not now")
    for _ in range(10):
        message = await agent.until(frames.Message)
        await agent.send_frame(frames.Nack(ids=[message.envelope.id], release=True))
    assert payload_of(await agent.until(frames.Message)) == "not now"


async def test_an_agent_that_releases_endlessly_is_slowed_down(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(50)
    await server.wait_until_idle()
    agent, deliveries = server.connect(), 0
    for _ in range(200):
        messages = await agent.read_messages()
        deliveries += len(messages)
        agent.send_frame(frames.Nack(ids=[one.envelope.id for one in messages], release=True))
        clock.advance_ms(1)
    assert deliveries < 2_000


async def test_during_a_pause_the_mailbox_is_not_reported_as_live(
    launcher: ServerLauncher, clock: ManualClock
) -> None:
    server = await launcher.open(redelivery=RedeliveryConfig(max_deliveries=0))
    server.store(2)
    await server.wait_until_idle()
    for _ in range(2):
        agent = server.connect()
        assert numbers(await agent.read()) == [0, 1]
        agent.disconnect()
    agent = server.connect()
    assert kinds(await agent.read()) == ["QueueStatus"]
    clock.advance_ms(1_000)
    assert numbers(await agent.read()) == [0, 1]


async def test_messages_fetched_to_be_shown_do_not_count_at_a_disconnect(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(redelivery=RedeliveryConfig(max_deliveries=2))
    identity, sender = Identity.new("agent.a"), await relay.connect("agent.b")
    for number in range(3):
        await sender.send("agent.a", number)
    for release in (True, True, True, False, False):
        agent = await relay.dial()
        await agent.authenticate(identity, receive="pull")
        await agent.send_frame(frames.Fetch(ref=1, wait=20.0, release=release))
        fetched = await agent.until(frames.FetchedMessages)
        assert [payload_of(one) for one in fetched.messages] == [0, 1, 2]
        await agent.disconnect()
        await eventually(lambda: not relay.context.hub.is_connected("agent.a"))
    assert await dead_letters(relay) == ["max deliveries exceeded (2/2): the connection ended"]
