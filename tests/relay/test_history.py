"""`explain`: the history of a message, with the counters of each check."""

from pathlib import Path

import pytest

from tests.relay.observing import DAY_MS, events, send
from waypost import (
    AccessDenied,
    AccessRule,
    BackpressureConfig,
    CircuitBreakerConfig,
    Envelope,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Relay,
    TierLimits,
)
from waypost.testing import ManualClock


async def history_of(relay: Relay, message_id: str) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in (await relay.explain(message_id)).steps]


async def test_the_history_of_an_accepted_message_has_every_check_with_its_counters(start) -> None:
    relay = await start(
        rate_limit=RateLimitConfig(max_per_window=10),
        backpressure=BackpressureConfig(max_mailbox_size=20),
        qos=QosConfig(enabled=True),
    )
    relay.register_endpoint("agent.a")
    await send(relay)
    result = await send(relay)
    size = relay.metrics().endpoints[0].bytes // 2
    assert await history_of(relay, result.message_id) == [
        ("check", "rate limit passed: 1/10 in the sender's window"),
        ("check", f"backpressure passed: 1/20 in the mailbox, {size:,} bytes"),
        ("check", f"quota of tier 1 passed: 1 messages, {size:,} bytes already in this inbox"),
        ("check", "circuit breaker passed: CLOSED"),
        ("check", "budget passed: hop 0 of 5, 10 calls left, expires 2023-11-14 23:13:20 UTC"),
        ("accepted", f"agent.b -> agent.a: stored, {size:,} bytes"),
    ]


async def test_a_history_has_the_outcome_of_the_message(relay: Relay, clock: ManualClock) -> None:
    result = await send(relay)
    await relay.lease("agent.a")
    clock.advance_ms(30_000)
    await relay.lease("agent.a")
    await relay.nack("agent.a", result.message_id)
    await relay.ack("agent.a", result.message_id)
    assert [step for step in await history_of(relay, result.message_id) if step[0] != "check"][
        1:
    ] == [
        ("leased", "delivered, attempt 1, via lease"),
        ("returned", "returned to the queue: lease timed out"),
        ("leased", "delivered, attempt 2, via lease"),
        ("returned", "returned to the queue: nack"),
        ("acked", "acknowledged via lease"),
    ]


async def test_a_history_has_the_failure_and_the_redrive(relay: Relay) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError("no")

    stop = relay.subscribe("agent.a", fail)
    result = await send(relay)
    await relay.idle()
    stop()
    await relay.redrive(result.message_id)
    kinds = [kind for kind, _ in await history_of(relay, result.message_id)]
    assert kinds[-4:] == ["accepted", "leased", "failed", "redriven"]


async def test_the_history_of_a_fan_out_names_each_endpoint(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    result = await send(relay, to="agent.*")
    await relay.ack("agent.c", result.message_id)
    steps = (await relay.explain(result.message_id)).steps
    assert [(one.kind, one.endpoint) for one in steps if one.kind != "check"] == [
        ("accepted", "agent.a"),
        ("accepted", "agent.c"),
        ("acked", "agent.c"),
    ]


async def test_steps_come_in_order_with_their_time(relay: Relay, clock: ManualClock) -> None:
    result = await send(relay)
    sent = clock()
    clock.advance_ms(5)
    await relay.ack("agent.a", result.message_id)
    steps = (await relay.explain(result.message_id)).steps
    assert [step.seq for step in steps] == sorted(step.seq for step in steps)
    assert (steps[0].at_us, steps[-1].at_us) == (sent, sent + 5_000)


async def test_the_history_of_a_message_without_recipients(relay: Relay) -> None:
    result = await send(relay, to="agent.nobody")
    assert await history_of(relay, result.message_id) == [
        ("check", "rate limit passed: 0/100 in the sender's window"),
        ("accepted", "agent.b -> agent.nobody: no recipient"),
    ]


async def test_a_disabled_check_is_not_in_the_history(start) -> None:
    relay = await start(
        rate_limit=RateLimitConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False),
    )
    relay.register_endpoint("agent.a")
    result = await send(relay)
    checks = [text for kind, text in await history_of(relay, result.message_id) if kind == "check"]
    assert [text.split(" ")[0] for text in checks] == ["circuit", "budget"]


async def test_a_history_ends_with_the_check_that_rejected(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    await send(relay, message_id="order-1")
    assert await history_of(relay, "order-1") == [
        ("check", "rate limit passed: 1/100 in the sender's window"),
        ("check", "backpressure rejected: 1/1 in the mailbox, 254 bytes"),
        ("rejected", "agent.b -> agent.a: backpressure: mailbox full (1/1)"),
    ]


async def test_the_history_of_a_rate_limited_message(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await send(relay)
    await send(relay, message_id="order-1")
    assert [text for _, text in await history_of(relay, "order-1")] == [
        "rate limit rejected: 1/1 in the sender's window",
        "agent.b -> agent.a: rate_limited: rate limit exceeded: 1/1 messages in 60s window",
    ]


async def test_the_history_of_a_message_over_its_quota(start) -> None:
    relay = await start(qos=QosConfig(enabled=True, tier1=TierLimits(0, 100)))
    relay.register_endpoint("agent.a")
    await send(relay, message_id="order-1")
    steps = await history_of(relay, "order-1")
    assert steps[-2][1] == "quota of tier 1 rejected: 0 messages, 0 bytes already in this inbox"
    assert "quota_exceeded" in steps[-1][1]


async def test_the_history_of_a_message_for_a_broken_endpoint(start) -> None:
    relay = await start(circuit_breaker=CircuitBreakerConfig(failure_threshold=1))
    relay.register_endpoint("agent.a")

    def fail(envelope: Envelope) -> None:
        raise ValueError

    relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    await send(relay, message_id="order-1")
    assert (await history_of(relay, "order-1"))[-2][1] == "circuit breaker rejected: OPEN"


async def test_the_history_of_a_message_over_its_budget(relay: Relay) -> None:
    result = await send(relay, budget={"call_budget_remaining": 0, "ttl": 77})
    steps = await history_of(relay, result.message_id)
    assert (
        steps[-2][1] == "budget rejected: hop 0 of 5, 0 calls left, expires 1970-01-01 00:00:00 UTC"
    )
    assert steps[-1][1].endswith("budget_exceeded: message expired (TTL)")


async def test_the_history_of_a_denied_message(relay: Relay) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    with pytest.raises(AccessDenied):
        await send(relay, message_id="order-1")
    ((kind, text),) = await history_of(relay, "order-1")
    assert kind == "rejected"
    assert "access_denied" in text


async def test_an_unknown_id_has_no_history(relay: Relay) -> None:
    await send(relay)
    for unknown in ("never-existed", "01HF7YAT0082JBA4FKCRSE3BW0", 'we"ird\n'):
        story = await relay.explain(unknown)
        assert (story.message_id, story.steps) == (unknown, [])


async def test_an_id_within_a_payload_is_not_part_of_the_history(relay: Relay) -> None:
    await send(relay, {"id": "order-1"}, message_id="order-2")
    assert (await relay.explain("order-1")).steps == []


@pytest.mark.parametrize(
    "message_id", ["order-1", "7ZZZZZZZZZ0000000000000000", "00000000000000000000000000"]
)
async def test_any_id_chosen_by_its_sender_has_a_history(relay: Relay, message_id: str) -> None:
    await send(relay, message_id=message_id)
    assert (await history_of(relay, message_id))[-1][0] == "accepted"


async def test_a_history_is_complete_when_its_segments_are_sealed(
    relay: Relay, clock: ManualClock, data: Path
) -> None:
    result = await send(relay)
    await relay.seal_journal()
    await relay.lease("agent.a")
    await relay.seal_journal()
    await relay.ack("agent.a", result.message_id)
    kinds = [kind for kind, _ in await history_of(relay, result.message_id) if kind != "check"]
    assert kinds == ["accepted", "leased", "acked"]


async def test_a_history_is_found_after_a_restart_and_long_afterwards(
    start, clock: ManualClock
) -> None:
    rarely = {"housekeeping": HousekeepingConfig(sweep_interval_ms=DAY_MS)}
    relay = await start(**rarely)
    relay.register_endpoint("agent.a")
    result = await send(relay)
    await relay.seal_journal()
    clock.advance_ms(3 * DAY_MS)
    relay = await start(**rarely)
    await send(relay)
    assert "accepted" in [kind for kind, _ in await history_of(relay, result.message_id)]


async def test_a_message_that_practically_never_expires_has_a_history(start) -> None:
    relay = await start(default_ttl_ms=1 << 52)
    relay.register_endpoint("agent.a")
    result = await send(relay)
    assert (await history_of(relay, result.message_id))[-1][0] == "accepted"


async def test_a_history_is_read_while_others_publish(relay: Relay, data: Path) -> None:
    result = await send(relay)
    await send(relay)
    assert len((await relay.explain(result.message_id)).steps) == 5
    assert len(events(data, "accepted")) == 2
