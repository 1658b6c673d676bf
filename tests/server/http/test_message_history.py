"""The history of a message, as operator, sender and recipient see it."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    QosConfig,
    RateLimitConfig,
    RedeliveryConfig,
)


async def visible_steps(
    served: HttpRelay, message_id: str, token: str
) -> list[dict[str, Any]] | None:
    answered = await served.call("GET", f"/v1/messages/{message_id}", token=token)
    assert answered.status_code in (200, 404)
    return answered.json()["steps"] if answered.status_code == 200 else None


async def sent_and_done(served: HttpRelay) -> str:
    """Publish a message from agent.a that agent.b acknowledges."""
    sent = await served.publish("agent.b", token=await served.token("agent.a"))
    token = await served.token("agent.b")
    [got] = await served.read("agent.b", token=token)
    await served.ack("agent.b", [got["id"]], token=token)
    return str(sent.json()["message_id"])


async def test_sender_and_recipient_see_the_outcome(served: HttpRelay) -> None:
    message_id = await sent_and_done(served)
    for who in ("agent.a", "agent.b"):
        steps = await visible_steps(served, message_id, await served.token(who))
        assert steps is not None
        assert [step["kind"] for step in steps] == ["accepted", "leased", "acked"]


async def test_the_operator_sees_every_check(served: HttpRelay) -> None:
    steps = await visible_steps(served, await sent_and_done(served), served.operator)
    assert steps is not None
    kinds = [step["kind"] for step in steps if step["kind"] != "check"]
    assert kinds == ["accepted", "leased", "acked"]
    assert any(step["text"].startswith("rate limit passed") for step in steps)
    assert all(step["seq"] > 0 for step in steps)


async def test_no_other_agent_learns_that_the_message_exists(served: HttpRelay) -> None:
    message_id = await sent_and_done(served)
    token = await served.token("agent.c")
    known = await served.call("GET", f"/v1/messages/{message_id}", token=token)
    unknown = await served.call("GET", "/v1/messages/never-was", token=token)
    assert known.status_code == unknown.status_code == 404
    assert known.json() == unknown.json()


async def test_agents_see_no_figures(serve: Serve) -> None:
    served = await serve(backpressure=BackpressureConfig(max_mailbox_size=1))
    token = await served.token("agent.a")
    await served.publish("agent.b", token=token)
    await served.publish("agent.b", token=token, message_id="late")
    steps = await visible_steps(served, "late", token)
    assert steps is not None
    assert [(step["kind"], step["text"]) for step in steps] == [
        ("rejected", "agent.a -> agent.b: backpressure")
    ]
    assert all("seq" not in step for step in steps)


async def test_a_recipient_of_many_sees_its_own_mailbox_only(served: HttpRelay) -> None:
    for subject in ("agent.b", "agent.c"):
        served.relay.register_endpoint(subject)
    sent = await served.publish("agent.*", token=await served.token("agent.a"))
    message_id = sent.json()["message_id"]
    as_recipient = await visible_steps(served, message_id, await served.token("agent.b"))
    as_sender = await visible_steps(served, message_id, await served.token("agent.a"))
    assert as_recipient is not None
    assert as_sender is not None
    assert {step["endpoint"] for step in as_recipient} == {"agent.b"}
    assert {step["endpoint"] for step in as_sender} == {"agent.a", "agent.*"}


async def test_reusing_the_id_of_another_agent_reveals_nothing(served: HttpRelay) -> None:
    spy, reader = await served.token("agent.spy"), await served.token("agent.b")
    await served.publish("agent.b", token=spy, message_id="m1")
    await served.ack("agent.b", ["m1"], token=reader)
    sent = await served.publish("agent.b", token=await served.token("agent.a"), message_id="m1")
    assert sent.json()["delivered_to"] == 1
    assert await served.read("agent.b", token=reader)
    steps = await visible_steps(served, "m1", spy)
    assert steps is not None
    assert [step["kind"] for step in steps] == ["accepted", "acked"]


def bytes_read() -> int:
    """Return how many bytes this process has read from files and sockets."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
async def test_a_history_is_found_without_reading_the_journal(serve: Serve) -> None:
    served = await serve(
        rate_limit=RateLimitConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False),
        qos=QosConfig(enabled=False),
    )
    message_id = await sent_and_done(served)
    served.relay.register_endpoint("agent.full")
    draft = {"subject": "agent.full", "payload": "x" * 4000, "sender": "agent.b"}
    await served.relay.publish_many([draft] * 1000)
    await served.relay.seal_journal()
    await served.relay.publish_many([draft] * 1000)  # 4 MB sealed, 4 MB in the open segment
    token = await served.token("agent.a")
    first = await visible_steps(served, message_id, token)
    before = bytes_read()
    for _ in range(5):
        assert await visible_steps(served, message_id, token) == first
    assert bytes_read() - before < 1_000_000


async def test_many_attempts_are_one_step_without_the_error_for_agents(serve: Serve) -> None:
    served = await serve(
        redelivery=RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1),
        circuit_breaker=CircuitBreakerConfig(enabled=False),
    )
    sent = await served.publish("agent.b", token=await served.token("agent.a"))
    for _ in range(10):
        await served.relay.lease("agent.b")
        await served.relay.nack("agent.b", sent.json()["message_id"], error="a secret")
        served.clock.advance_ms(1_000)
    steps = {
        who: await visible_steps(served, sent.json()["message_id"], token)
        for who, token in (("a", await served.token("agent.a")), ("operator", served.operator))
    }
    assert steps["a"] is not None
    assert [step["kind"] for step in steps["a"]] == ["accepted", "returned"]
    assert steps["a"][-1]["text"].startswith("delivered 10 times between")
    assert "secret" not in str(steps["a"])
    assert steps["operator"] is not None
    assert steps["operator"][-1]["text"].endswith("; last error: a secret")


async def test_the_operator_sees_payload_and_parent_and_others_do_not(served: HttpRelay) -> None:
    first = await served.publish(
        "agent.b", {"text": "<b>hi</b>"}, token=await served.token("agent.a")
    )
    message_id = first.json()["message_id"]
    seen = await served.call("GET", f"/v1/messages/{message_id}", token=served.operator)
    assert seen.json()["payload"] == {"text": "<b>hi</b>"}
    assert seen.json()["parent"] is None
    mine = await served.call(
        "GET", f"/v1/messages/{message_id}", token=await served.token("agent.a")
    )
    assert {"payload", "parent"}.isdisjoint(mine.json())
