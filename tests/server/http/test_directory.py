"""The directory of agents over HTTP: cards, and who may see whom."""

import asyncio
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from tests.server.sessions.raw_agent import connect
from tests.server.sessions.transports import MemoryTransport
from waypost import RateLimitConfig
from waypost.client.identity import Identity
from waypost.policy.bounds import name_changes_per_minute_max, similar_names_per_second_max
from waypost.server import directory
from waypost.server.context import ServeOptions
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL

CODER = {
    "description": "Writes and reviews Python.",
    "skills": ["python", "code-review"],
    "version": "1.4",
    "accepts_requests": False,
}
EMPTY = {"description": "", "skills": [], "version": "", "accepts_requests": True}


@pytest.fixture
async def opened(serve: Serve) -> HttpRelay:
    """A relay whose agents see each other."""
    return await serve(ServeOptions(directory="open"))


async def set_card(relay: HttpRelay, subject: str, card: dict[str, Any]) -> tuple[int, Any]:
    token = await relay.token(subject)
    answer = await relay.call("PUT", "/v1/agents/me", token=token, json=card)
    return answer.status_code, answer.json()


async def find(relay: HttpRelay, viewer: str, **query: Any) -> list[str]:
    """Return the subjects that `viewer` finds."""
    token = relay.operator if viewer == "operator" else await relay.token(viewer)
    answer = await relay.call("GET", "/v1/agents", token=token, params=query)
    assert answer.status_code == 200, answer.text
    return [one["subject"] for one in answer.json()["agents"]]


async def exchange(relay: HttpRelay, one: str, other: str) -> None:
    """Let two agents write to each other."""
    for sender, recipient in ((one, other), (other, one)):
        sent = await relay.publish(recipient, 1, token=await relay.token(sender))
        assert sent.status_code == 200, sent.text


async def test_agents_find_each_other_by_skill(opened: HttpRelay) -> None:
    await set_card(opened, "agent.coder", CODER)
    await set_card(opened, "agent.poet", {"skills": ["rhyme"]})
    await opened.token("agent.quiet")
    assert await find(opened, "agent.me", skill="python") == ["agent.coder"]
    assert await find(opened, "agent.me", skill="Python") == ["agent.coder"]
    assert await find(opened, "agent.me", skill="cobol") == []
    everyone = ["agent.coder", "agent.me", "agent.poet", "agent.quiet"]
    assert await find(opened, "agent.me") == everyone


async def test_a_card_is_shown_with_the_key_and_the_presence_of_its_agent(
    opened: HttpRelay,
) -> None:
    _, put = await set_card(opened, "agent.coder", CODER)
    token = await opened.token("agent.me")
    shown = (await opened.call("GET", "/v1/agents/agent.coder", token=token)).json()
    assert shown == put
    key = opened.context.authenticator.key_of("agent.coder")
    assert shown == {
        "subject": "agent.coder",
        "public_key": key,
        **CODER,
        "connected": False,
        "last_seen": None,
    }
    poet = Identity.new("agent.poet")
    agent = await connect(MemoryTransport(opened.context, JSON_PROTOCOL), poet)
    shown = (await opened.call("GET", "/v1/agents/agent.poet", token=token)).json()
    assert (shown["connected"], shown["last_seen"], shown["skills"]) == (True, None, [])
    await agent.disconnect()
    for _ in range(100):
        await asyncio.sleep(0)
    shown = (await opened.call("GET", "/v1/agents/agent.poet", token=token)).json()
    assert shown["connected"] is False
    assert shown["last_seen"] is not None


async def test_a_card_survives_a_restart_and_a_rotation_and_ends_with_its_owner(
    serve: Serve,
) -> None:
    relay = await serve(ServeOptions(directory="open"))
    await set_card(relay, "agent.coder", CODER)
    await relay.context.names.close()
    relay.context.authenticator.close()
    bindings = relay.context.authenticator.bindings.open(
        relay.context.lake.parent / "identities.jsonl"
    )
    known = bindings.get("agent.coder")
    assert known is not None
    assert known.card is not None
    assert known.card.skills == ("python", "code-review")
    new = Identity.new("agent.coder").public_key
    bindings.rotate("agent.coder", known.public_key, new, 1)
    rotated = bindings.get("agent.coder")
    assert rotated is not None
    assert rotated.card == known.card
    bindings.bind_by_operator("agent.coder", "another", 2, replace=True)
    replaced = bindings.get("agent.coder")
    assert replaced is not None
    assert replaced.card is None
    bindings.close()


async def test_an_empty_card_removes_the_one_before(opened: HttpRelay) -> None:
    await set_card(opened, "agent.coder", CODER)
    _, shown = await set_card(opened, "agent.coder", {})
    assert shown | EMPTY == shown
    assert await find(opened, "agent.me", skill="python") == []


@pytest.mark.parametrize(
    ("card", "hint"),
    [
        ({"description": "x" * 1001}, "1,000"),
        ({"description": "two\nlines"}, "one line"),
        ({"description": "\u202eesrever"}, "printable"),
        ({"skills": ["Code Review"]}, "lower-case"),
        ({"skills": [""]}, "lower-case"),
        ({"skills": ["x" * 33]}, "32"),
        ({"skills": [f"s{n}" for n in range(21)]}, "20"),
        ({"version": "v" * 65}, "64"),
        ({"skils": []}, "skils"),
    ],
)
async def test_an_invalid_card_is_answered_with_what_to_do(
    opened: HttpRelay, card: dict[str, Any], hint: str
) -> None:
    status, problem = await set_card(opened, "agent.coder", card)
    assert (status, problem["reason"]) == (400, "invalid")
    assert hint in problem["error"]


async def test_changes_of_a_card_are_limited_and_the_same_card_is_no_change(
    opened: HttpRelay,
) -> None:
    for n in range(name_changes_per_minute_max):
        for _ in range(2):
            assert (await set_card(opened, "agent.a", {"version": str(n)}))[0] == 200
    status, problem = await set_card(opened, "agent.a", {"version": "one more"})
    assert (status, problem["reason"]) == (429, "rate_limited")
    assert problem["retry_after_ms"] > 0


async def test_the_operator_has_no_card(opened: HttpRelay) -> None:
    answer = await opened.call("PUT", "/v1/agents/me", token=opened.operator, json=CODER)
    assert answer.status_code == 403
    assert "agent" in answer.json()["error"]


async def test_only_contacts_see_each_other_by_default(served: HttpRelay) -> None:
    for subject in ("agent.friend", "agent.stranger", "agent.fan"):
        await set_card(served, subject, CODER)
    await exchange(served, "agent.me", "agent.friend")
    await served.publish("agent.me", 1, token=await served.token("agent.fan"))
    assert await find(served, "agent.me") == ["agent.friend", "agent.me"]
    assert await find(served, "agent.me", skill="python") == ["agent.friend"]
    assert await find(served, "agent.friend") == ["agent.friend", "agent.me"]
    token = await served.token("agent.me")
    for hidden in ("agent.stranger", "agent.fan", "agent.unknown"):
        answer = await served.call("GET", f"/v1/agents/{hidden}", token=token)
        assert answer.status_code == 404
        assert answer.json()["error"].replace(hidden, "X") == (
            "the directory shows you no agent X: the relay shows agents to those they exchange"
            " messages with"
        )
    assert len(await find(served, "operator")) == 4


async def test_a_closed_directory_is_for_the_operator(serve: Serve) -> None:
    relay = await serve(ServeOptions(directory="closed"))
    await set_card(relay, "agent.coder", CODER)
    await exchange(relay, "agent.me", "agent.coder")
    token = await relay.token("agent.me")
    for path in ("/v1/agents", "/v1/agents/agent.coder"):
        answer = await relay.call("GET", path, token=token)
        assert answer.status_code == 403
        assert "ask its operator" in answer.json()["error"]
    assert (await relay.call("GET", "/v1/agents/agent.me", token=token)).status_code == 200
    assert await find(relay, "operator", skill="python") == ["agent.coder"]


@pytest.mark.parametrize("looked_at", [1000, 2, 5])
async def test_the_directory_is_read_in_pages(
    opened: HttpRelay, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(directory, "directory_page_max_names", looked_at)
    for n in range(5):
        await set_card(opened, f"agent.{n}", {"skills": ["count"]})
    token, after, found = await opened.token("agent.0"), None, []
    while True:
        query = {"limit": 2, "skill": "count"} | ({} if after is None else {"after": after})
        page = (await opened.call("GET", "/v1/agents", token=token, params=query)).json()
        found += [one["subject"] for one in page["agents"]]
        after = page["next"]
        if after is None:
            break
    assert found == [f"agent.{n}" for n in range(5)]


# --- Sends to names without an agent -------------------------------------------------------------


async def test_a_send_to_a_name_that_never_connected_says_so(opened: HttpRelay) -> None:
    await opened.token("agent.coder")
    token = await opened.token("agent.me")
    for subject, meant in (
        ("agent.codr", "agent.coder"),
        ("agent.Coder", "agent.coder"),
        ("agent.cdoer", "agent.coder"),
        ("agent.coderr", "agent.coder"),
        ("coder", "agent.coder"),
        ("agent.something-else", ""),
    ):
        sent = (await opened.publish(subject, 1, token=token)).json()
        assert sent["never_connected"] == {"did_you_mean": meant}, subject
    known = (await opened.publish("agent.coder", 1, token=token)).json()
    assert "never_connected" not in known
    assert "never_connected" not in (await opened.publish("agent.*", 1, token=token)).json()


async def test_over_the_websocket_it_is_the_same(opened: HttpRelay) -> None:
    await opened.token("agent.coder")
    transport = MemoryTransport(opened.context, JSON_PROTOCOL)
    agent = await connect(transport, Identity.new("agent.me"))
    answer = await agent.send("agent.codr", 1)
    assert isinstance(answer, frames.SendResult)
    assert answer.never_connected
    assert answer.never_connected.did_you_mean == "agent.coder"
    await agent.disconnect()


async def test_a_flood_of_names_gets_few_searches(serve: Serve) -> None:
    limits = {"rate_limit": RateLimitConfig(enabled=False)}
    relay = await serve(ServeOptions(directory="open"), **limits)
    for n in range(3 * similar_names_per_second_max):
        await relay.token(f"agent.coder-{n}")
    token = await relay.token("agent.me")
    wrong = [f"agent.codr-{n}" for n in range(3 * similar_names_per_second_max)]
    messages = [{"subject": one, "payload": 1} for one in wrong]
    body = {"messages": messages}
    answer = (await relay.call("POST", "/v1/messages", token=token, json=body)).json()
    meant = [one["never_connected"]["did_you_mean"] for one in answer["results"]]
    assert sum(map(bool, meant)) == similar_names_per_second_max
    relay.clock.advance_ms(1000)
    again = (await relay.publish(wrong[-1], 1, token=token)).json()
    assert again["never_connected"]["did_you_mean"].startswith("agent.coder-")


@pytest.mark.parametrize("mode", ["contacts", "closed"])
async def test_no_name_is_given_away_where_the_directory_does_not_list_it(
    serve: Serve, mode: Any
) -> None:
    relay = await serve(ServeOptions(directory=mode))
    await relay.token("agent.coder")
    sent = await relay.publish("agent.codr", 1, token=await relay.token("agent.me"))
    assert "never_connected" not in sent.json()
    answer = await relay.publish("agent.codr", 1, token=relay.operator)
    assert answer.json()["never_connected"] == {"did_you_mean": "agent.coder"}


async def test_a_caller_without_keys_learns_it_where_anyone_may_take_keys(
    opened: HttpRelay,
) -> None:
    await opened.token("agent.coder")
    sent = (await opened.publish("agent.codr", 1)).json()
    assert sent["never_connected"] == {"did_you_mean": "agent.coder"}
    config = {"names": {"policy": "closed"}}
    await opened.call("PUT", "/v1/config", token=opened.operator, json=config)
    assert "never_connected" not in (await opened.publish("agent.codr", 1)).json()
