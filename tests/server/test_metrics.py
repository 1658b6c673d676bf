"""Metrics for Prometheus."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from waypost import AccessRule, Settings
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.policy.rate_limits import RateLimitConfig
from waypost.server.context import ServerContext
from waypost.server.metrics import CONTENT_TYPE, Connected
from waypost.server.server import make_app, open_context
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    rate_limit=RateLimitConfig(max_per_window=3),
    circuit_breaker=CircuitBreakerConfig(failure_threshold=1),
)


@pytest.fixture
async def context(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServerContext]:
    async with open_context(tmp_path / "data", settings=SETTINGS, clock=clock) as opened:
        yield opened


def numbers(context: ServerContext) -> dict[str, float]:
    """Return every sample by name and labels."""
    connected = Connected(
        0, context.hub.stuck_count(), context.hub.signals, context.webhooks.notices
    )
    totals = context.relay.inspect().totals()
    text = context.http_metrics.render(context.relay, totals, connected).decode()
    return {
        f"{sample.name}{list(sample.labels.values()) or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_outcomes_of_messages_are_counted(context: ServerContext) -> None:
    relay = context.relay
    for _ in range(2):
        await relay.publish("agent.b", "x", sender="agent.a")
    [first] = await relay.lease("agent.b", limit=1)
    await relay.ack("agent.b", first.id)
    await relay.lease("agent.b")
    found = numbers(context)
    assert found["waypost_messages_accepted_total"] == 2
    assert found["waypost_deliveries_total"] == 2
    assert found["waypost_acknowledgements_total"] == 1
    assert found["waypost_messages['leased']"] == 1
    assert found["waypost_messages['pending']"] == 0
    assert found["waypost_mailbox_depth_max"] == 1
    assert found["waypost_mailbox_bytes"] > 0
    assert found["waypost_endpoints"] == 1
    assert found["waypost_journal_commits_total"] > 0


async def test_rejections_are_counted_by_reason(context: ServerContext) -> None:
    relay = context.relay
    for _ in range(5):
        await relay.publish("agent.b", "x", sender="agent.a")
    relay.access.add_rule(AccessRule("agent.c", ">", "deny"))
    await relay.publish_many([{"subject": "agent.b", "payload": 1, "sender": "agent.c"}])
    found = numbers(context)
    assert found["waypost_agent_rate_limit_rejections_total"] == 2
    assert found["waypost_rejections_total['rate_limited']"] == 2
    assert found["waypost_rejections_total['access_denied']"] == 1
    assert found["waypost_rejections_total['backpressure']"] == 0


async def test_state_changes_of_breakers_are_counted(
    context: ServerContext, clock: ManualClock
) -> None:
    relay = context.relay
    await relay.publish("agent.b", "x", sender="agent.a")
    relay._runtime.breaker_feedback.on_file_written("agent.b", ok=False)
    found = numbers(context)
    assert found["waypost_circuit_breaker_transitions_total['CLOSED', 'OPEN']"] == 1
    assert found["waypost_circuit_breakers['OPEN']"] == 1
    clock.advance_ms(30_000)
    await relay.publish("agent.b", "x", sender="agent.a")
    found = numbers(context)
    assert found["waypost_circuit_breaker_transitions_total['OPEN', 'HALF_OPEN']"] == 1


async def test_the_number_of_series_does_not_grow_with_agents(context: ServerContext) -> None:
    await context.relay.publish("agent.b", "x", sender="agent.a")
    before = set(numbers(context))
    for n in range(50):
        await context.relay.publish(f"agent.n{n}", "x", sender=f"agent.m{n}")
    assert set(numbers(context)) == before


async def test_a_full_disk_is_reported(context: ServerContext) -> None:
    assert numbers(context)["waypost_storage_full"] == 0
    context.relay._runtime.journal.full = True
    assert numbers(context)["waypost_storage_full"] == 1


async def test_requests_are_counted_by_route_and_not_by_path(context: ServerContext) -> None:
    transport = httpx.ASGITransport(app=make_app(context))
    async with httpx.AsyncClient(transport=transport, base_url="http://relay.test") as client:
        for subject in ("agent.a", "agent.b"):
            await client.get(f"/v1/inbox/{subject}")
        answered = await client.get("/metrics")
    assert answered.headers["content-type"] == CONTENT_TYPE
    found = numbers(context)
    assert found["waypost_http_requests_total['GET', '/v1/inbox/{subject}', '401']"] == 2
    assert found["waypost_http_request_seconds_count['GET', '/v1/inbox/{subject}']"] == 2
