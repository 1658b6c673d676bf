"""Live statistics over HTTP."""

import asyncio
import json
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from tests.server.sessions.raw_agent import connect
from tests.server.sessions.transports import MemoryTransport
from waypost.client.identity import Identity
from waypost.policy.bounds import viewer_connections_max
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.server.live.sampler import SAMPLES_MAX
from waypost.wire.frames import JSON_PROTOCOL


async def once(served: HttpRelay, show: str) -> dict[str, Any]:
    """Return the first event of each name."""
    answered = await served.call(
        "GET", "/v1/live", token=served.operator, params={"show": show, "once": "true"}
    )
    assert answered.headers["content-type"].startswith("text/event-stream")
    frames = [one.split("\n") for one in answered.text.split("\n\n") if one]
    return {event[7:]: json.loads(data[6:]) for event, data in frames}


async def a_second(served: HttpRelay, seconds: int = 1) -> None:
    for _ in range(seconds):
        served.clock.advance_ms(1000)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_each_second_is_a_sample_of_its_events(served: HttpRelay) -> None:
    await a_second(served)
    for _ in range(3):
        await served.publish("agent.a")
    await a_second(served)
    await a_second(served)
    samples = (await once(served, "numbers"))["history"]
    assert [one.get("accepted", 0) for one in samples] == [0, 3, 0]
    assert [one.get("pending", 0) for one in samples] == [0, 3, 3]


async def test_acknowledgements_are_measured_from_arrival(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    await served.publish("agent.a", message_id="m1")
    served.clock.advance_ms(250)
    await served.read("agent.a", token=token)
    await served.ack("agent.a", ["m1"], token=token)
    await a_second(served)
    sample = (await once(served, "numbers"))["history"][-1]
    assert (sample["waits"], sample["wait_p50_ms"]) == (1, 250.0)


async def test_only_the_past_minutes_are_kept(served: HttpRelay) -> None:
    await a_second(served, SAMPLES_MAX + 20)
    assert len((await once(served, "numbers"))["history"]) == SAMPLES_MAX


async def test_rejections_are_sampled_by_reason(served: HttpRelay) -> None:
    for _ in range(21):
        await served.publish("agent.a")
    await a_second(served)
    assert (await once(served, "numbers"))["history"][-1]["rejected"] == {"quota_exceeded": 1}


async def test_inboxes_are_streamed_as_rows_with_their_pressure(served: HttpRelay) -> None:
    await served.publish("agent.a")
    await served.publish("agent.a")
    await served.token("agent.empty")
    found = (await once(served, "inboxes"))["rows"]
    assert (found["whole"], found["total"]) == (True, 2)
    [row] = [one for one in found["rows"] if one["subject"] == "agent.a"]
    assert (row["pending"], row["senders"], row["pressure"]) == (2, 1, 0.002)


async def test_breakers_are_streamed_with_their_state_changes(serve: Serve) -> None:
    served = await serve(circuit_breaker=CircuitBreakerConfig(failure_threshold=1))

    def fail(envelope: object) -> None:
        raise RuntimeError("no")

    served.relay.register_endpoint("agent.flaky")
    served.relay.subscribe("agent.flaky", fail)
    await served.publish("agent.flaky")
    await served.relay.idle()
    found = (await once(served, "numbers"))["breakers"]
    assert [(one["endpoint"], one["state"]) for one in found["states"]] == [("agent.flaky", "OPEN")]
    assert [(one["before"], one["after"]) for one in found["moves"]] == [("CLOSED", "OPEN")]


async def test_problems_are_streamed(served: HttpRelay) -> None:
    (served.context.relay._runtime.data.config).write_text("{")
    served.context.relay._runtime.settings.reload()
    [problem] = (await once(served, "numbers"))["standing"]["problems"]
    assert "config.json is ignored" in problem


async def test_a_stream_continues_until_the_relay_shuts_down(served: HttpRelay) -> None:
    frames = served.context.sampler.stream("numbers")
    assert b"event: history" in await anext(frames)
    await a_second(served)
    found = b"".join([await anext(frames) for _ in range(2)])
    assert b"event: sample" in found
    served.context.sampler.disconnect_all()
    assert [one async for one in frames] == []


async def test_there_is_a_bound_on_viewers(served: HttpRelay) -> None:
    viewers = [served.context.sampler.stream("numbers") for _ in range(viewer_connections_max)]
    for viewer in viewers:
        await anext(viewer)
    rejected = await served.call("GET", "/v1/live", token=served.operator)
    assert rejected.status_code == 503
    assert rejected.json()["reason"] == "full"
    for viewer in viewers:
        await viewer.aclose()
    assert not served.context.sampler.is_full


@pytest.mark.parametrize("show", ["everything", ""])
async def test_an_unknown_topic_is_rejected(served: HttpRelay, show: str) -> None:
    rejected = await served.call(
        "GET", "/v1/live", token=served.operator, params={"show": show, "once": "true"}
    )
    assert rejected.status_code == 400


async def test_each_connection_that_shares_a_mailbox_is_listed(served: HttpRelay) -> None:
    identity = Identity.new("agent.pool")
    for _ in range(2):
        transport = MemoryTransport(served.context, JSON_PROTOCOL)
        await connect(transport, identity, shared=True)
    for _ in range(3):
        await served.publish("agent.pool")
    found = (await once(served, "agents"))["rows"]
    assert [(one["subject"], one["shared"]) for one in found["rows"]] == [("agent.pool", True)] * 2
    assert [(one["unconfirmed"], one["pending"]) for one in found["rows"]] == [(1, 1)] * 2
    assert len({one["key"] for one in found["rows"]}) == found["total"] == 2
    stats = (await served.call("GET", "/v1/stats", token=served.operator)).json()
    assert [(one["subject"], one["shared"]) for one in stats["connected"]] == [
        ("agent.pool", True),
        ("agent.pool", True),
    ]
