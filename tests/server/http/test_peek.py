"""Peeking over HTTP: for the owner of an inbox and the operator."""

from typing import Any

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from tests.server.http.test_inboxes import Pushed
from waypost.server.context import ServeOptions


async def peek(served: HttpRelay, subject: str, token: str, **query: Any) -> dict[str, Any]:
    found = await served.call("GET", f"/v1/inbox/{subject}/peek", token=token, params=query)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


async def test_a_peek_shows_pending_messages_and_leases_none(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    for n in range(4):
        await served.publish("agent.b", n)
    [first] = await served.read("agent.b", token=token, limit=1)
    for _ in range(3):
        seen = await peek(served, "agent.b", token, limit=2)
        assert [one["payload"] for one in seen["messages"]] == [1, 2]
        assert (seen["subject"], seen["pending"], seen["leased"]) == ("agent.b", 3, 1)
    assert [one["payload"] for one in await served.read("agent.b", token=token)] == [1, 2, 3]
    [shown] = (await served.read("agent.b", token=token)) or [first]
    assert shown["id"] == first["id"]


async def test_a_peek_is_no_delivery(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    sent = (await served.publish("agent.b", "x")).json()["message_id"]
    await peek(served, "agent.b", token)
    history = await served.call("GET", f"/v1/messages/{sent}", token=token)
    assert [step["kind"] for step in history.json()["steps"]] == ["accepted"]


async def test_only_the_owner_and_the_operator_may_peek(served: HttpRelay) -> None:
    other = await served.token("agent.c")
    await served.publish("agent.b", "private")
    forbidden = await served.call("GET", "/v1/inbox/agent.b/peek", token=other)
    assert forbidden.status_code == 403
    assert (await served.call("GET", "/v1/inbox/agent.b/peek")).status_code == 401
    assert len((await peek(served, "agent.b", served.operator))["messages"]) == 1
    unknown = await served.call("GET", "/v1/inbox/agent.x/peek", token=served.operator)
    assert unknown.status_code == 404


async def test_a_connected_agent_may_peek(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "waiting")
    served.context.hub.add(Pushed("agent.b"))
    assert len((await peek(served, "agent.b", token))["messages"]) == 1


async def test_a_peek_is_bounded_in_count_and_bytes(serve: Serve) -> None:
    served = await serve(ServeOptions(answer_max_bytes=3000))
    token = await served.token("agent.b")
    for n in range(4):
        await served.publish("agent.b", str(n) * 1000)
    assert len((await peek(served, "agent.b", token))["messages"]) == 2
    small = await peek(served, "agent.b", token, max_size_bytes=100)
    assert (small["messages"], small["pending"]) == ([], 4)
    for query in ("limit=0", "limit=1001", "limit=x", "wait=1"):
        found = await served.call("GET", f"/v1/inbox/agent.b/peek?{query}", token=token)
        assert found.status_code == 400
