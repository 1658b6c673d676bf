"""Publishes to patterns, through a socket: what they cost, and who may make them."""

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from waypost import RateLimitConfig
from waypost.client.identity import Identity
from waypost.policy.subject_index import SubjectIndex
from waypost.wire import frames

TOO_MANY_TEXT = "more than 100 endpoints match: use a narrower pattern (maxFanout)"


async def token_of(relay: SocketRelay, subject: str, client: httpx.AsyncClient) -> str:
    """Return a token for a new key of `subject`."""
    challenge = (await client.post("/v1/auth/challenge")).json()
    proof = Identity.new(subject).prove(challenge["nonce"], relay.address)
    body = {
        "subject": subject,
        "public_key": proof.public_key,
        "signature": proof.signature,
        "nonce": challenge["nonce"],
    }
    return str((await client.post("/v1/auth/token", json=body)).json()["token"])


async def publish(relay: SocketRelay, body: object, *, sender: str | None = None) -> httpx.Response:
    """Publish over HTTP, as an agent with a new key or without any."""
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False, timeout=60) as client:
        headers = {}
        if sender is not None:
            headers["Authorization"] = f"Bearer {await token_of(relay, sender, client)}"
        return await client.post("/v1/messages", json=body, headers=headers)


def message(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "payload": 1, **more}


def add_endpoints(relay: SocketRelay, count: int) -> None:
    for number in range(count):
        relay.context.relay.register_endpoint(f"agent.n{number}")


def stored(relay: SocketRelay) -> int:
    return relay.context.relay.metrics().total_messages


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns whose endpoints were searched."""
    found: list[str] = []

    def record(search: Callable[..., Any]) -> Callable[..., Any]:
        def call(index: SubjectIndex[Any], pattern: str, *bounds: Any) -> Any:
            found.append(pattern)
            return search(index, pattern, *bounds)

        return call

    for name in ("within", "within_bounds"):
        if hasattr(SubjectIndex, name):
            monkeypatch.setattr(SubjectIndex, name, record(getattr(SubjectIndex, name)))
    return found


@pytest.mark.parametrize("chosen", [False, True])
async def test_a_publish_over_the_rate_limit_looks_up_no_endpoint(
    serve_relay: ServeRelay, searches: list[str], chosen: bool
) -> None:
    relay = await serve_relay(rate_limit=RateLimitConfig(max_per_window=3))
    add_endpoints(relay, 50)
    flood = [
        message(">", **({"message_id": f"id-{number}"} if chosen else {})) for number in range(500)
    ]
    answer = await publish(relay, {"messages": flood}, sender="agent.flood")
    reasons = [one["rejected"][0]["reason"] for one in answer.json()["results"][3:]]
    assert set(reasons) == {"rate_limited"}
    # with chosen ids, those that pass are searched twice: before any is published, and then
    assert len(searches) == (6 if chosen else 3)


async def test_over_the_rate_limit_a_repeated_id_still_gets_its_first_result(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(rate_limit=RateLimitConfig(max_per_window=1))
    add_endpoints(relay, 2)
    again = [message("agent.*", message_id="id-1")] * 3
    answer = await publish(relay, {"messages": [*again, message("agent.*")]}, sender="boss.a")
    *same, other = answer.json()["results"]
    assert [one["delivered_to"] for one in same] == [2, 2, 2]
    assert other["rejected"][0]["reason"] == "rate_limited"
    assert stored(relay) == 2


async def test_a_pattern_that_matches_too_many_endpoints_is_rejected_whole(
    served: SocketRelay,
) -> None:
    add_endpoints(served, 101)
    rejected = await publish(served, message("agent.*"), sender="boss.a")
    assert (rejected.status_code, rejected.json()["reason"]) == (422, "fanout_exceeded")
    assert rejected.json()["error"] == TOO_MANY_TEXT
    agent = await served.connect("boss.b")
    answer = await agent.send(">", 1)
    assert isinstance(answer, frames.SendResult)
    assert [(one.reason, one.detail) for one in answer.rejected] == [
        ("fanout_exceeded", TOO_MANY_TEXT)
    ]
    assert stored(served) == 0
    await agent.disconnect()


async def test_a_pattern_may_reach_as_many_endpoints_as_the_limit(served: SocketRelay) -> None:
    add_endpoints(served, 100)
    answer = await publish(served, message("agent.*"), sender="boss.a")
    assert answer.json()["delivered_to"] == 100


async def test_a_rejected_fan_out_counts_towards_the_rate_limit(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(rate_limit=RateLimitConfig(max_per_window=2), max_fanout=1)
    add_endpoints(relay, 2)
    answer = await publish(relay, {"messages": [message(">")] * 3}, sender="boss.a")
    reasons = [one["rejected"][0]["reason"] for one in answer.json()["results"]]
    assert reasons == ["fanout_exceeded", "fanout_exceeded", "rate_limited"]


async def test_a_pattern_that_only_passes_many_names_is_rejected_too(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(max_fanout=1)
    add_endpoints(relay, 101)
    rejected = await publish(relay, message("*.*.nothing"), sender="boss.a")
    assert rejected.json()["reason"] == "fanout_exceeded"


async def test_a_sender_without_a_key_may_not_publish_to_patterns(served: SocketRelay) -> None:
    add_endpoints(served, 2)
    rejected = await publish(served, message("agent.*"))
    assert (rejected.status_code, rejected.json()["reason"]) == (403, "access_denied")
    assert "patternSenders" in rejected.json()["error"]
    assert stored(served) == 0
    assert (await publish(served, message("agent.n1"))).json()["delivered_to"] == 1


async def test_other_requests_get_their_turn_within_a_large_batch(served: SocketRelay) -> None:
    add_endpoints(served, 100)
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def observe() -> None:
        seen.append(stored(served))
        if not done:
            loop.call_soon(observe)

    done = False
    loop.call_soon(observe)
    answer = await publish(served, {"messages": [message("agent.*")] * 20}, sender="boss.a")
    done = True
    total = sum(one["delivered_to"] for one in answer.json()["results"])
    assert total == stored(served) == 2000
    assert any(0 < count < total for count in seen)


async def test_a_fan_out_shares_one_payload_in_memory_and_in_the_journal(
    serve_relay: ServeRelay, tmp_path: Path
) -> None:
    relay = await serve_relay(storage="maildir")
    add_endpoints(relay, 100)
    text = "x" * 250_000
    await publish(relay, message("agent.n1"), sender="boss.a")  # what the first request imports
    tracemalloc.start()
    try:
        answer = await publish(relay, message("agent.*", payload=text), sender="boss.b")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.json()["delivered_to"] == 100
    assert peak_bytes < 25 * len(text)
    [bodies] = (tmp_path / "data" / "journal").glob("*.bodies*")
    assert bodies.stat().st_size == len(text) + len('""')
    files = [*(tmp_path / "data" / "mailboxes").glob("*/new/*")]
    assert len(files) == 101
