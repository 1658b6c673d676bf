"""The operator disconnects agents and releases their leases."""

from tests.server.http.http_relay import HttpRelay
from tests.server.sessions.raw_agent import connect
from tests.server.sessions.transports import MemoryTransport
from waypost.client.identity import Identity
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL


async def post(served: HttpRelay, path: str) -> tuple[int, object]:
    answer = await served.call("POST", path, token=served.operator)
    return answer.status_code, answer.json().get("count")


async def test_the_operator_disconnects_an_agent(served: HttpRelay) -> None:
    agent = await connect(MemoryTransport(served.context, JSON_PROTOCOL), Identity.new("agent.b"))
    assert await post(served, "/v1/agents/agent.b/disconnect") == (200, 1)
    end = await agent.end()
    assert (end.code, end.reason) == (
        frames.CLOSE_BY_OPERATOR,
        "disconnected by the operator of the relay",
    )
    assert await post(served, "/v1/agents/agent.b/disconnect") == (404, None)


async def test_its_messages_are_pending_again(served: HttpRelay) -> None:
    await served.publish("agent.b", "work")
    agent = await connect(MemoryTransport(served.context, JSON_PROTOCOL), Identity.new("agent.b"))
    await agent.until(frames.Message)
    assert await post(served, "/v1/agents/agent.b/disconnect") == (200, 1)
    await agent.end()
    assert [one.payload for one in await served.relay.lease("agent.b")] == ["work"]


async def test_the_operator_releases_the_leases_of_an_agent(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "work")
    (leased,) = await served.read("agent.b", token=token)
    assert await post(served, "/v1/agents/agent.b/release") == (200, 1)
    assert [one["id"] for one in await served.read("agent.b", token=token)] == [leased["id"]]
    assert await post(served, "/v1/agents/agent.nobody/release") == (404, None)


async def test_a_connected_agent_gets_no_more_until_it_shows_life(served: HttpRelay) -> None:
    await served.publish("agent.b", "work")
    agent = await connect(MemoryTransport(served.context, JSON_PROTOCOL), Identity.new("agent.b"))
    message = await agent.until(frames.Message)
    assert await post(served, "/v1/agents/agent.b/release") == (200, 1)
    await served.publish("agent.b", "more")
    assert served.context.hub.stuck_count() == 1
    await agent.ack(message)
    again = await agent.until(frames.Message)
    assert again.envelope.payload is not None
    assert served.context.hub.stuck_count() == 0
    await agent.disconnect()
