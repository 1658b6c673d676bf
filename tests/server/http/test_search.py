"""Searching messages in memory and in the journal."""

from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.policy.rate_limits import RateLimitConfig
from waypost.relay.inspection import search


async def find(served: HttpRelay, **query: Any) -> dict[str, Any]:
    answered = await served.call(
        "GET", "/v1/messages", token=served.operator, params={k: str(v) for k, v in query.items()}
    )
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


async def outcomes(served: HttpRelay, **query: Any) -> dict[str, str]:
    """Return the outcomes of messages by id, without stored receipts."""
    found = await find(served, **query)
    return {one["id"]: one["outcome"] for one in found["messages"] if one["sender"] != "_relay"}


@pytest.fixture
async def history(served: HttpRelay) -> HttpRelay:
    """One message of each outcome, from agent.web to agent.a, and one from another sender."""
    web, owner = await served.token("agent.web"), await served.token("agent.a")
    await served.publish("agent.a", "x", token=web, message_id="done")
    await served.read("agent.a", token=owner)
    await served.ack("agent.a", ["done"], token=owner)
    served.clock.advance_ms(1000)
    await served.publish("agent.a", "x", token=web, message_id="dead", budget={"ttl": 0})
    served.clock.advance_ms(1000)
    await served.publish("agent.a", {"sender": "agent.web"}, message_id="other")
    await served.publish("agent.b", "x", token=web, message_id="elsewhere")
    await served.publish("agent.a", "x", token=web, message_id="waits")
    await served.read("agent.a", token=owner, limit=1)
    return served


async def test_everything_is_found_the_newest_first(history: HttpRelay) -> None:
    found = await find(history, endpoint="agent.a")
    assert [one["id"] for one in found["messages"]] == ["waits", "other", "dead", "done"]
    assert not found["more"]


async def test_each_message_has_its_outcome(history: HttpRelay) -> None:
    assert await outcomes(history, endpoint="agent.a") == {
        **{"done": "acked", "dead": "dead", "other": "leased", "waits": "pending"}
    }


async def test_the_sender_is_not_read_from_the_payload(history: HttpRelay) -> None:
    found = await outcomes(history, sender="agent.web")
    assert set(found) == {"done", "dead", "elsewhere", "waits"}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"sender": "agent.*", "endpoint": "agent.a"}, {"done", "dead", "waits"}),
        ({"endpoint": "agent.>"}, {"done", "dead", "other", "elsewhere", "waits"}),
        ({"outcome": "acked"}, {"done"}),
        ({"outcome": "dead"}, {"dead"}),
        ({"outcome": "expired"}, set()),
        ({"id": "done"}, {"done"}),
        ({"id": "waits"}, {"waits"}),
        ({"id": "never-was"}, set()),
        ({"sender": "agent.nobody"}, set()),
    ],
)
async def test_every_search_criterion_is_applied(
    history: HttpRelay, query: dict[str, str], ids: set[str]
) -> None:
    assert set(await outcomes(history, **query)) == ids


async def test_times_are_a_window(history: HttpRelay) -> None:
    [dead] = (await find(history, id="dead"))["messages"]
    at_us = dead["at_us"]
    assert set(await outcomes(history, until_us=at_us)) == {"done", "dead"}
    since = await outcomes(history, since_us=at_us, endpoint="agent.a")
    assert set(since) == {"dead", "other", "waits"}


async def test_rejections_are_found_with_their_reason(serve: Serve) -> None:
    served = await serve(rate_limit=RateLimitConfig(max_per_window=1))
    await served.publish("agent.a")
    await served.publish("agent.a")
    found = await find(served, outcome="rejected", endpoint="agent.a")
    [rejected] = found["messages"]
    assert rejected["reason"].startswith("rate_limited: rate limit exceeded")


async def test_the_outcome_of_a_message_is_found_across_segments(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    await served.publish("agent.a", message_id="m1")
    await served.relay.seal_journal()
    await served.publish("agent.b", message_id="m2")
    await served.read("agent.a", token=token)
    await served.ack("agent.a", ["m1"], token=token)
    assert (await outcomes(served, id="m1")) == {"m1": "acked"}


async def test_a_purged_dead_letter_differs_from_an_expired_message(
    served: HttpRelay,
) -> None:
    await served.publish("agent.a", message_id="late")
    served.clock.advance_ms(8 * 24 * 3_600_000)
    await served.read("agent.a", token=served.operator)
    assert (await outcomes(served, id="late")) == {"late": "expired"}


async def test_a_limited_result_reports_that_there_is_more(history: HttpRelay) -> None:
    found = await find(history, limit=2)
    assert len(found["messages"]) == 2
    assert found["more"]


async def test_only_a_window_of_the_journal_is_read(
    history: HttpRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = await find(history)
    monkeypatch.setattr(search, "WINDOW_BYTES", 600)
    some = await find(history)
    assert some["since_us"] > everything["since_us"] > 0
    found = {one["id"] for one in some["messages"]}
    assert "done" not in found  # it has left, and is outside the window
    assert {"dead", "waits"} <= found  # stored messages are found at any age


async def test_an_invalid_pattern_is_rejected(served: HttpRelay) -> None:
    rejected = await served.call(
        "GET", "/v1/messages", token=served.operator, params={"sender": "agent..a"}
    )
    assert rejected.status_code == 400


async def test_an_arrival_during_a_search_is_not_reported_as_gone(served: HttpRelay) -> None:
    await served.publish("agent.a", message_id="before")
    seq = served.relay._runtime.ledger.state.seq
    await served.publish("agent.a", message_id="meanwhile")
    journal = served.relay._runtime.data.journal
    found = search.find_in_journal(journal, search.SearchQuery(seq=seq), set())
    assert [one.id for one in found.messages] == ["before"]


async def test_pages_hold_each_message_once_also_those_of_one_instant(served: HttpRelay) -> None:
    for number in range(7):
        await served.publish("agent.a", "x", message_id=f"m{number}")
        if number == 4:
            served.clock.advance_ms(1000)
    owner = await served.token("agent.a")
    await served.read("agent.a", token=owner)
    await served.ack("agent.a", ["m1", "m5"], token=owner)
    found, after = list[str](), {}
    while True:
        page = await find(served, endpoint="agent.a", limit=2, **after)
        found += [one["id"] for one in page["messages"]]
        if not page["next"]:
            break
        after = {"after": page["next"]}
    assert found == ["m6", "m5", "m4", "m3", "m2", "m1", "m0"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1-", "-1-2", "1-2-3", "9" * 40 + "-1"])
async def test_an_invalid_cursor_is_an_error_that_names_it(served: HttpRelay, cursor: str) -> None:
    for path in ("/v1/messages", "/v1/dead-letters"):
        params = {"after": cursor}
        answered = await served.call("GET", path, token=served.operator, params=params)
        assert answered.status_code == 400, answered.text
        assert "after" in answered.json()["error"]
