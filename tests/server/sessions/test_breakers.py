"""Circuit breakers of a served relay: agents that fail open them, over real sockets."""

from typing import Any

import httpx
import pytest

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent, payload_of, rejected_with
from waypost import CircuitBreakerConfig
from waypost.client.identity import Identity
from waypost.policy.redelivery import RedeliveryConfig
from waypost.wire import frames

FRAGILE = CircuitBreakerConfig(failure_threshold=3, cooldown_ms=1_000, success_to_close=1)
QUICK = RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1)
BOTH = pytest.mark.parametrize("storage", ["journal", "maildir"])


def state_of(relay: SocketRelay) -> str:
    breaker = relay.context.relay.metrics().breakers.get("agent.a")
    return str(breaker.state) if breaker else "CLOSED"


async def fail(agent: RawAgent, times: int) -> None:
    for _ in range(times):
        message = await agent.until(frames.Message)
        await agent.send_frame(frames.Nack(ids=[message.envelope.id]))


@BOTH
async def test_an_agent_that_nacks_opens_its_breaker(serve_relay: ServeRelay, storage: str) -> None:
    relay = await serve_relay(storage=storage, circuit_breaker=FRAGILE)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    for number in range(3):
        await sender.send("agent.a", number)
    await fail(agent, 3)
    await eventually(lambda: state_of(relay) == "OPEN", "the breaker to open")
    assert rejected_with(await sender.send("agent.a", "too late")) == "circuit_open"


@BOTH
async def test_messages_that_arrive_between_failures_do_not_keep_the_breaker_closed(
    serve_relay: ServeRelay, storage: str
) -> None:
    relay = await serve_relay(storage=storage, circuit_breaker=FRAGILE)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    for _ in range(3):
        await sender.send("agent.a", "work")
        message = await agent.until(frames.Message)
        await agent.send_frame(frames.Nack(ids=[message.envelope.id], delay=60))
    await eventually(lambda: state_of(relay) == "OPEN", "the breaker to open")


@BOTH
async def test_an_agent_that_disconnects_during_its_work_opens_its_breaker(
    serve_relay: ServeRelay, storage: str
) -> None:
    relay = await serve_relay(storage=storage, circuit_breaker=FRAGILE, redelivery=QUICK)
    identity, sender = Identity.new("agent.a"), await relay.connect("agent.b")
    await sender.send("agent.a", "work")
    await sender.send("agent.a", "fetched ahead")
    for _ in range(3):
        agent = await relay.dial()
        await agent.authenticate(identity)
        assert payload_of(await agent.until(frames.Message)) == "work"
        await agent.disconnect()
        await eventually(lambda: not relay.context.hub.is_connected("agent.a"))
    await eventually(lambda: state_of(relay) == "OPEN", "the breaker to open")


@BOTH
@pytest.mark.parametrize("lost", [False, True], ids=["nacked", "lost"])
async def test_failed_leases_over_http_open_the_breaker(
    serve_relay: ServeRelay, storage: str, lost: bool
) -> None:
    relay = await serve_relay(
        storage=storage, circuit_breaker=FRAGILE, lease_timeout_ms=1_000 if lost else 60_000
    )
    operator = (relay.data_dir / "operator-token").read_text().strip()
    headers = {"Authorization": f"Bearer {operator}"}
    async with httpx.AsyncClient(base_url=relay.url, headers=headers) as client:

        async def call(method: str, path: str, **body: Any) -> dict[str, Any]:
            answer = await client.request(method, path, json=body or None)
            return answer.json()

        for number in range(3):
            await call("POST", "/v1/messages", subject="agent.a", payload=number)
        leased = (await call("GET", "/v1/inbox/agent.a"))["messages"]
        if not lost:
            await call("POST", "/v1/inbox/agent.a/nack", ids=[one["id"] for one in leased])
        await eventually(lambda: state_of(relay) == "OPEN", "the breaker to open")
        rejected = await call("POST", "/v1/messages", subject="agent.a", payload="too late")
        assert rejected["reason"] == "circuit_open"


async def test_an_open_breaker_waits_for_the_verdict_of_a_connected_agent(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(circuit_breaker=FRAGILE)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    for number in range(3):
        await sender.send("agent.a", number)
    await fail(agent, 3)
    await eventually(lambda: state_of(relay) == "OPEN", "the breaker to open")

    async def admitted() -> bool:
        answer = await sender.send("agent.a", "probe")
        return isinstance(answer, frames.SendResult) and answer.delivered_to == 1

    await eventually(admitted, "the probe to be admitted")
    assert state_of(relay) == "HALF_OPEN"
    assert not await admitted()
    while payload_of(message := await agent.until(frames.Message)) != "probe":
        pass
    await agent.ack(message)
    await eventually(lambda: state_of(relay) == "CLOSED", "the breaker to close")
    assert await admitted()


async def test_messages_released_or_fetched_ahead_are_no_failures(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(circuit_breaker=FRAGILE)
    agent, sender = await relay.connect("agent.a"), await relay.connect("agent.b")
    for number in range(5):
        await sender.send("agent.a", number)
    ids = [(await agent.until(frames.Message)).envelope.id for _ in range(5)]
    await agent.send_frame(frames.Nack(ids=ids[3:], release=True))
    await agent.disconnect()
    await eventually(lambda: not relay.context.hub.is_connected("agent.a"))
    assert relay.context.relay.metrics().breakers["agent.a"].consecutive_failures == 1
