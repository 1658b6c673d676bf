"""Threads over HTTP: dialogues, and a conversation as operator and agents see it."""

from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.server.server import SERVED_SETTINGS


async def take_turn(served: HttpRelay, me: str) -> Any:
    """Read the message of `me`, acknowledge it and answer it."""
    token = await served.token(me)
    [got] = [one for one in await served.read(me, token=token) if one["sender"] != "_relay"]
    await served.ack(me, [got["id"]], token=token)
    return await served.publish(got["sender"], "next", token=token, parent={"id": got["id"]})


async def dialogue(served: HttpRelay, turns: int, **first: Any) -> str:
    """Let agent.a and agent.b take turns; return the id of the first message."""
    sent = await served.publish("agent.b", "first", token=await served.token("agent.a"), **first)
    for turn in range(1, turns):
        answered = await take_turn(served, ("agent.a", "agent.b")[turn % 2])
        assert answered.status_code == 200, answered.text
    return str(sent.json()["message_id"])


async def thread(served: HttpRelay, thread_id: str, token: str) -> Any:
    return await served.call("GET", f"/v1/threads/{thread_id}", token=token)


async def test_a_dialogue_ends_after_the_forty_calls_of_a_served_relay(serve: Serve) -> None:
    served = await serve(default_call_budget=SERVED_SETTINGS.default_call_budget)
    first = await dialogue(served, 40)
    rejected = await take_turn(served, "agent.a")
    assert rejected.json()["error"] == "call budget exhausted"
    found = (await thread(served, first, served.operator)).json()
    assert [one["calls_left"] for one in found["messages"]] == list(range(40, -1, -1))
    assert [one["outcome"] for one in found["messages"]] == ["acked"] * 40 + ["dead"]
    assert found["messages"][-1]["reason"] == "call budget exhausted"


async def test_the_number_of_calls_is_a_setting(serve: Serve) -> None:
    served = await serve(default_call_budget=3)
    await dialogue(served, 3)
    assert (await take_turn(served, "agent.b")).status_code == 422


async def test_a_thread_is_the_id_of_its_first_message_or_chosen(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    first = await served.publish("agent.b", 1)
    await served.publish("agent.b", 2, thread="release-42")
    threads = [one["thread"] for one in await served.read("agent.b", token=token)]
    assert threads == [first.json()["message_id"], "release-42"]


@pytest.mark.parametrize("bad", ["", "a b", "../x", "x" * 201, 7])
async def test_an_invalid_thread_is_rejected(served: HttpRelay, bad: object) -> None:
    assert (await served.publish("agent.b", 1, thread=bad)).status_code == 400


async def test_an_agent_cannot_join_a_thread_with_a_message_it_did_not_get(
    served: HttpRelay,
) -> None:
    first = await dialogue(served, 2)
    mallory = await served.token("agent.mallory")
    await served.publish("agent.b", "me too", token=mallory, parent={"id": first}, message_id="in")
    [got] = [
        one
        for one in await served.read("agent.b", token=await served.token("agent.b"))
        if one["id"] == "in"
    ]
    assert (got["thread"], got["parent"], got["answer"]) == ("in", None, False)


async def test_agents_see_their_part_of_a_thread_and_the_operator_all(served: HttpRelay) -> None:
    await dialogue(served, 2, thread="team")
    token = await served.token("agent.a")
    [got] = [one for one in await served.read("agent.a", token=token) if one["thread"] == "team"]
    await served.publish("agent.c", "and you?", token=token, parent={"id": got["id"]})
    seen = {}
    for who in ("agent.a", "agent.b", "agent.c"):
        found = (await thread(served, "team", await served.token(who))).json()
        seen[who] = [(one["sender"], one["endpoint"]) for one in found["messages"]]
    first, answer = ("agent.a", "agent.b"), ("agent.b", "agent.a")
    asked = ("agent.a", "agent.c")
    assert seen == {
        "agent.a": [first, answer, asked],
        "agent.b": [first, answer],
        "agent.c": [asked],
    }
    found = (await thread(served, "team", served.operator)).json()
    assert len(found["messages"]) == 3


async def test_no_other_agent_learns_that_a_thread_exists(served: HttpRelay) -> None:
    first = await dialogue(served, 2)
    token = await served.token("agent.mallory")
    known, unknown = await thread(served, first, token), await thread(served, "none", token)
    assert known.status_code == unknown.status_code == 404
    assert known.json() == unknown.json()


async def test_the_history_of_a_message_names_its_thread(served: HttpRelay) -> None:
    first = await dialogue(served, 3)
    found = (await thread(served, first, served.operator)).json()["messages"]
    for token in (served.operator, await served.token("agent.a")):
        answered = await served.call("GET", f"/v1/messages/{found[1]['id']}", token=token)
        assert answered.json()["thread"] == first


async def test_messages_are_searched_by_thread(served: HttpRelay) -> None:
    first = await dialogue(served, 4)
    await dialogue(served, 1)
    params = {"thread": first, "sender": "agent.b"}
    answered = await served.call("GET", "/v1/messages", token=served.operator, params=params)
    found = answered.json()["messages"]
    assert [(one["sender"], one["outcome"]) for one in found] == [
        ("agent.b", "pending"),
        ("agent.b", "acked"),
    ]


async def test_the_sender_of_a_broadcast_does_not_see_who_got_it(served: HttpRelay) -> None:
    for name in ("agent.x", "agent.y"):
        await served.token(name)
        await served.publish(name, "hello")
    token = await served.token("agent.a")
    sent = await served.publish("agent.*", "all", token=token)
    found = (await thread(served, sent.json()["message_id"], token)).json()["messages"]
    assert {one["endpoint"] for one in found} <= {"agent.*", "agent.a"}
