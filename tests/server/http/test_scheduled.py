"""Scheduled messages over HTTP: sent, listed and cancelled by their sender and the operator."""

from typing import Any

from tests.server.http.http_relay import HttpRelay

NOON = "2023-11-14T22:13:30Z"  # ten seconds after the clock's beginning


async def listed(served: HttpRelay, token: str, **query: Any) -> list[dict[str, Any]]:
    found = await served.call("GET", "/v1/scheduled", token=token, params=query)
    assert found.status_code == 200, found.text
    messages: list[dict[str, Any]] = found.json()["messages"]
    return messages


async def cancel(served: HttpRelay, token: str, *ids: str) -> dict[str, list[str]]:
    done = await served.call("POST", "/v1/scheduled/cancel", token=token, json={"ids": list(ids)})
    assert done.status_code == 200, done.text
    body: dict[str, list[str]] = done.json()
    return body


async def read(served: HttpRelay, token: str) -> list[object]:
    await served.relay.idle()
    return [one["payload"] for one in await served.read("agent.b", token=token)]


async def test_a_message_is_delivered_after_its_delay_or_at_its_instant(served: HttpRelay) -> None:
    token, ann = await served.token("agent.b"), await served.token("agent.ann")
    later = await served.publish("agent.b", "delayed", token=ann, delay=20)
    assert (later.status_code, later.json()["delivered_to"]) == (200, 1)
    assert (await served.publish("agent.b", "at", token=ann, deliver_at=NOON)).status_code == 200
    served.clock.advance_ms(9_999)
    assert await read(served, token) == []
    served.clock.advance_ms(1)
    assert await read(served, token) == ["at"]
    served.clock.advance_ms(10_000)
    assert await read(served, token) == ["delayed"]


async def test_a_time_that_cannot_be_is_a_bad_request(served: HttpRelay) -> None:
    bad = [{"delay": -1}, {"delay": 1e12}, {"delay": "5m"}, {"deliver_at": "2026-01-01T00:00:00"}]
    bad += [{"deliver_at": "tomorrow"}, {"delay": 8 * 86_400}, {"delay": 1, "deliver_at": NOON}]
    for when in bad:
        rejected = await served.publish("agent.b", 1, **when)
        assert rejected.status_code == 400, when
    assert served.relay.inspect().scheduled() == []


async def test_an_agent_lists_and_cancels_its_own_messages_and_the_operator_all(
    served: HttpRelay,
) -> None:
    ann, bob = await served.token("agent.ann"), await served.token("agent.bob")
    mine = (await served.publish("agent.b", 1, token=ann, delay=20)).json()["message_id"]
    his = (await served.publish("agent.b", 2, token=bob, delay=10)).json()["message_id"]
    [shown] = await listed(served, ann)
    assert (shown["id"], shown["sender"], shown["endpoint"]) == (mine, "agent.ann", "agent.b")
    assert shown["deliver_at"] == "2023-11-14T22:13:40Z"
    assert [one["id"] for one in await listed(served, served.operator)] == [his, mine]
    assert await cancel(served, ann, his) == {"cancelled": [], "not_cancelled": [his]}
    assert await cancel(served, ann, mine, "x") == {"cancelled": [mine], "not_cancelled": ["x"]}
    assert await cancel(served, served.operator, his) == {"cancelled": [his], "not_cancelled": []}
    assert await listed(served, served.operator) == []


async def test_the_endpoints_of_a_pattern_are_not_shown_to_the_sender(served: HttpRelay) -> None:
    await served.token("agent.b"), await served.token("agent.c")
    ann = await served.token("agent.ann")
    sent = await served.publish("agent.*", 1, token=ann, delay=20)
    [shown] = await listed(served, ann)
    assert (shown["subject"], shown["endpoint"]) == ("agent.*", "agent.*")
    assert len(await listed(served, served.operator)) == sent.json()["delivered_to"] > 1


async def test_a_list_is_bounded_and_tells_that_there_is_more(served: HttpRelay) -> None:
    ann = await served.token("agent.ann")
    for n in range(3):
        await served.publish("agent.b", n, token=ann, delay=10 + n)
    found = await served.call("GET", "/v1/scheduled", token=ann, params={"limit": 2})
    assert (len(found.json()["messages"]), found.json()["more"]) == (2, True)
    too_many = await served.call("GET", "/v1/scheduled", token=ann, params={"limit": 1001})
    assert too_many.status_code == 400


async def test_a_recipient_learns_of_a_message_when_it_is_due(served: HttpRelay) -> None:
    token, ann = await served.token("agent.b"), await served.token("agent.ann")
    sent = (await served.publish("agent.b", 1, token=ann, delay=10)).json()["message_id"]
    for path in (f"/v1/messages/{sent}", f"/v1/threads/{sent}"):
        assert (await served.call("GET", path, token=token)).status_code == 404
        assert (await served.call("GET", path, token=ann)).status_code == 200
    served.clock.advance_ms(10_000)
    await served.relay.idle()
    seen = await served.call("GET", f"/v1/messages/{sent}", token=token)
    assert [step["kind"] for step in seen.json()["steps"]] == ["accepted", "queued"]
    assert (await served.call("GET", f"/v1/threads/{sent}", token=token)).status_code == 200


async def test_statistics_and_metrics_count_scheduled_messages(served: HttpRelay) -> None:
    ann = await served.token("agent.ann")
    await served.token("agent.b")
    await served.publish("agent.b", 1, token=ann, delay=10)
    stats = (await served.call("GET", "/v1/stats", token=served.operator)).json()
    assert stats["by_status"] == {"pending": 0, "scheduled": 1, "leased": 0, "dead": 0}
    inbox = next(one for one in stats["inboxes"] if one["subject"] == "agent.b")
    assert (inbox["pending"], inbox["scheduled"]) == (0, 1)
    metrics = (await served.call("GET", "/metrics")).text
    assert 'waypost_messages{state="scheduled"} 1.0' in metrics
