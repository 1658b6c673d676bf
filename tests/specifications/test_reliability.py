"""Rate limits, circuit breakers and backpressure: the functions, and a relay that uses them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.relay.observing import drafts, reasons, send, write
from waypost import (
    AccessDenied,
    AccessRule,
    BackpressureConfig,
    CircuitBreakerConfig,
    CircuitBreakers,
    Envelope,
    RateLimitConfig,
    Relay,
    Settings,
    check_backpressure,
    check_rate_limit,
    resolve_limit,
)
from waypost.testing import ManualClock

COOLDOWN_MS = 30_000
A = "5d4475ca3ccb"
B = "0123456789ab"


# --- Rate limit ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "is_allowed"), [(0, True), (99, True), (100, False), (101, False), (5_000, False)]
)
def test_a_sender_may_send_below_its_limit(count: int, is_allowed: bool) -> None:
    result = check_rate_limit("agent.a", count, RateLimitConfig())
    assert (result.allowed, result.current_count, result.limit) == (is_allowed, count, 100)


def test_a_rejection_states_count_limit_and_window() -> None:
    result = check_rate_limit("agent.a", 12, RateLimitConfig(max_per_window=10, window_secs=30))
    assert result.reason == "rate limit exceeded: 12/10 messages in 30s window"


def test_without_a_rate_limit_any_count_passes() -> None:
    assert check_rate_limit("agent.a", 1_000_000, RateLimitConfig(enabled=False)).allowed


def test_the_default_rate_is_one_hundred_in_a_minute() -> None:
    config = RateLimitConfig()
    assert (config.enabled, config.window_secs, config.max_per_window) == (True, 60, 100)


@pytest.mark.parametrize(
    ("sender", "limit"),
    [("agent.a.b.c", 3), ("agent.a", 2), ("agent.b", 1), ("agen", 7), ("x.agent.a", 7)],
)
def test_the_override_with_the_longest_prefix_applies(sender: str, limit: int) -> None:
    overrides = {"agent": 1, "agent.a.b": 3, "agent.a": 2}
    config = RateLimitConfig(max_per_window=7, per_sender_overrides=overrides)
    assert resolve_limit(sender, config) == limit


def test_the_empty_prefix_is_an_override_for_everyone() -> None:
    config = RateLimitConfig(max_per_window=7, per_sender_overrides={"": 3, "agent.a": 2})
    assert [resolve_limit(one, config) for one in ("agent.a", "agent.b")] == [2, 3]


async def test_the_window_slides_and_rejections_do_not_extend_it(start, clock: ManualClock) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=2, window_secs=10))
    relay.register_endpoint("agent.a")
    sent = []
    for wait_ms in (0, 4_000, 5_999, 1, 3_999, 1):
        clock.advance_ms(wait_ms)
        sent.append((await send(relay)).delivered_to)
    assert sent == [1, 1, 0, 1, 0, 1], "at 0, 4, 10 and 14 s"


# --- Circuit breaker -----------------------------------------------------------------------------


def failed(times: int, endpoint: str = A, **config: int) -> CircuitBreakers:
    """Return breakers on which `endpoint` has failed at time 0."""
    breakers = CircuitBreakers(CircuitBreakerConfig(**config))
    for _ in range(times):
        breakers.record_failure(endpoint, 0)
    return breakers


def test_an_unknown_endpoint_is_closed() -> None:
    result = CircuitBreakers().check(A, 0)
    assert (result.allowed, result.state) == (True, "CLOSED")


@pytest.mark.parametrize(("failures", "state"), [(1, "CLOSED"), (4, "CLOSED"), (5, "OPEN")])
def test_the_fifth_failure_in_a_row_opens_a_breaker(failures: int, state: str) -> None:
    breakers = failed(failures)
    assert breakers.check(A, 1).state == state
    assert breakers.get_states()[A].consecutive_failures == failures


def test_a_success_between_failures_starts_the_count_again() -> None:
    breakers = failed(4)
    breakers.record_success(A, 1)
    for _ in range(4):
        breakers.record_failure(A, 2)
    assert breakers.check(A, 3).allowed


def test_breakers_are_independent() -> None:
    breakers = failed(5)
    assert (breakers.check(A, 1).allowed, breakers.check(B, 1).allowed) == (False, True)


@pytest.mark.parametrize("now_ms", [0, COOLDOWN_MS - 1])
def test_an_open_breaker_rejects_and_names_the_endpoint_until_the_cooldown_ends(
    now_ms: int,
) -> None:
    result = failed(5).check(A, now_ms)
    assert (result.allowed, result.state) == (False, "OPEN")
    assert result.reason == f"circuit open for endpoint {A}"


@pytest.mark.parametrize("probes", [1, 3])
def test_after_the_cooldown_as_many_probes_as_configured_are_admitted(probes: int) -> None:
    breakers = failed(5, half_open_probe_count=probes)
    results = [breakers.check(A, COOLDOWN_MS) for _ in range(probes + 2)]
    assert [one.allowed for one in results] == [True] * probes + [False] * 2
    assert {one.state for one in results} == {"HALF_OPEN"}


def probed(breakers: CircuitBreakers, *outcomes: bool) -> str:
    """Send a probe for each outcome and return the state after it."""
    for succeeded in outcomes:
        assert breakers.check(A, COOLDOWN_MS).allowed
        (breakers.record_success if succeeded else breakers.record_failure)(A, COOLDOWN_MS)
    return str(breakers.state_of(A))


def test_two_good_probes_close_a_breaker() -> None:
    breakers = failed(5)
    assert [probed(breakers, True) for _ in range(2)] == ["HALF_OPEN", "CLOSED"]
    assert breakers.check(A, COOLDOWN_MS).allowed


def test_a_failed_probe_opens_a_breaker_again_and_forgets_the_successes() -> None:
    breakers = failed(5)
    assert probed(breakers, True, False) == "OPEN"
    assert breakers.get_states()[A].half_open_successes == 0
    assert not breakers.check(A, 2 * COOLDOWN_MS - 1).allowed


def test_the_defaults_of_a_breaker() -> None:
    config = CircuitBreakerConfig()
    assert (config.enabled, config.failure_threshold, config.cooldown_ms) == (True, 5, 30_000)
    assert (config.half_open_probe_count, config.success_to_close) == (1, 2)


def test_the_states_are_copies_and_one_breaker_can_be_reset() -> None:
    breakers = failed(5)
    breakers.get_states()[A].consecutive_failures = 0
    assert breakers.get_states()[A].consecutive_failures == 5
    breakers.reset(A)
    breakers.reset(B)
    assert breakers.check(A, 1).state == "CLOSED"


def test_new_settings_apply_to_breakers_that_exist() -> None:
    breakers = failed(3)
    breakers.update_config(CircuitBreakerConfig(failure_threshold=4))
    breakers.record_failure(A, 1)
    assert breakers.check(A, 2).state == "OPEN"
    breakers.update_config(CircuitBreakerConfig(enabled=False))
    assert breakers.check(A, 2).allowed, "switched off, everything passes"


async def test_the_states_of_all_breakers_can_be_read_in_the_metrics(start) -> None:
    relay = await with_open_breaker(start)
    assert {name: one.state for name, one in relay.metrics().breakers.items()} == {
        "agent.a": "OPEN"
    }


async def with_open_breaker(start, **settings: object) -> Relay:
    """Return a relay whose handler of agent.a has failed once, which opens its breaker."""
    relay = await start(circuit_breaker=CircuitBreakerConfig(failure_threshold=1), **settings)
    relay.register_endpoint("agent.a")

    def fail(envelope: Envelope) -> None:
        raise ValueError

    relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    return relay


# --- Backpressure --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "is_allowed", "pressure"),
    [(0, True, 0.0), (500, True, 0.5), (999, True, 0.999), (1000, False, 1.0), (2000, False, 1.0)],
)
def test_a_mailbox_accepts_messages_below_its_cap(
    size: int, is_allowed: bool, pressure: float
) -> None:
    result = check_backpressure(size, BackpressureConfig())
    assert (result.allowed, result.current_size, result.pressure) == (is_allowed, size, pressure)
    assert (result.reason is None) == is_allowed


def test_a_cap_of_zero_divides_by_nothing() -> None:
    assert not check_backpressure(0, BackpressureConfig(max_mailbox_size=0)).allowed


def test_without_a_cap_any_size_passes() -> None:
    result = check_backpressure(1_000_000, BackpressureConfig(enabled=False))
    assert (result.allowed, result.pressure) == (True, 0.0)


def test_the_defaults_of_backpressure() -> None:
    config = BackpressureConfig()
    assert (config.enabled, config.max_mailbox_size, config.pressure_warning_at) == (
        True,
        1000,
        0.8,
    )


# --- The order of the checks ---------------------------------------------------------------------


LIMITS = {
    "rate_limited": {"reliability": {"rateLimit": {"maxPerWindow": 2}}},
    "backpressure": {"reliability": {"backpressure": {"maxMailboxSize": 1}}},
    "quota_exceeded": {"qos": {"enabled": True, "tier1": {"maxEnvelopes": 0}}},
    "circuit_open": {"reliability": {"circuitBreaker": {"failureThreshold": 1}}},
}
OFF = {
    "rate_limited": {"reliability": {"rateLimit": {"enabled": False}}},
    "backpressure": {"reliability": {"backpressure": {"enabled": False}}},
    "quota_exceeded": {"qos": {"enabled": False}},
    "circuit_open": {"reliability": {"circuitBreaker": {"enabled": False}}},
}


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return one document for `config.json` with the fields of all `parts`."""
    found: dict[str, Any] = {"reliability": {}}
    for part in parts:
        found["reliability"] |= part.get("reliability", {})
        found |= {name: value for name, value in part.items() if name != "reliability"}
    return found


async def test_of_all_checks_that_fail_the_first_is_reported(
    data: Path, clock: ManualClock
) -> None:
    everyone = AccessRule(from_=">", to=">", action="deny", priority=1)
    async with Relay(data, settings=Settings(durability="async"), clock=clock) as relay:
        relay.register_endpoint("agent.a")

        def leave_and_fail(envelope: Envelope) -> None:
            leave()
            raise ValueError

        await relay.publish_many(drafts(2))
        config = {"reliability": {"circuitBreaker": {"failureThreshold": 1}}}
        await configure(relay, data, config)
        leave = relay.subscribe("agent.a", leave_and_fail)
        await relay.idle()
        relay.access.add_rule(everyone)
        found = []
        for number in range(5):
            in_force = [*list(OFF.values())[:number], *list(LIMITS.values())[number:]]
            await configure(relay, data, merged(*in_force))
            with suppress(AccessDenied):
                found += reasons(await send(relay, budget={"call_budget_remaining": 0}))
            if number == 1:
                relay.access.remove_rule(">", ">")
                found += reasons(await send(relay, budget={"call_budget_remaining": 0}))
        assert found == [*LIMITS, "budget_exceeded"]


async def configure(relay: Relay, data: Path, document: dict[str, Any]) -> None:
    """Write `config.json`, and wait until it is in force."""
    document["maxHops"] = relay.settings.max_hops + 1
    write(data / "config.json", document)
    await eventually(lambda: relay.settings.max_hops == document["maxHops"], "the new settings")


async def test_the_result_lists_deliveries_rejections_and_pressure_of_each_endpoint(start) -> None:
    relay = await with_open_breaker(start)
    open_one, other = relay.get_endpoint("agent.a"), relay.register_endpoint("agent.c")
    assert open_one is not None
    result = await send(relay, to="agent.*")
    assert (len(result.message_id), result.delivered_to) == (26, 1)
    assert [(one.endpoint_hash, one.reason) for one in result.rejected] == [
        (open_one.hash, "circuit_open")
    ]
    assert result.mailbox_pressure == {open_one.hash: 0.0, other.hash: 0.0}


async def test_a_result_without_rejections_has_an_empty_list(start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    assert (await send(relay)).rejected == []


# --- Settings ------------------------------------------------------------------------------------


async def test_reliability_settings_of_the_file_apply_without_a_restart(
    data: Path, clock: ManualClock
) -> None:
    settings = Settings(durability="async", watch_files=True)
    async with Relay(data, settings=settings, clock=clock) as relay:
        changed = {
            "rateLimit": {"maxPerWindow": 7},
            "circuitBreaker": {"cooldownMs": 1_000},
            "backpressure": {"maxMailboxSize": 3},
        }
        write(data / "config.json", {"reliability": changed})
        await eventually(lambda: relay.settings.rate_limit.max_per_window == 7, "the new settings")
        assert relay.settings.circuit_breaker.cooldown_ms == 1_000
        assert relay.settings.backpressure.max_mailbox_size == 3
        assert relay.settings.rate_limit.window_secs == 60, "fields that are not given stay"
        write(data / "config.json", {"reliability": {"circuitBreaker": {"cooldownMs": 999}}})
        await eventually(lambda: relay.metrics().problems, "the problem")
        assert relay.settings.circuit_breaker.cooldown_ms == 1_000
        assert relay.settings.rate_limit.max_per_window == 7


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("rateLimit", "windowSecs", 0),
        ("rateLimit", "maxPerWindow", 0),
        ("rateLimit", "perSenderOverrides", {"agent.a": 0}),
        ("circuitBreaker", "failureThreshold", 0),
        ("circuitBreaker", "cooldownMs", 999),
        ("circuitBreaker", "halfOpenProbeCount", 0),
        ("circuitBreaker", "successToClose", 0),
        ("backpressure", "maxMailboxSize", 0),
        ("backpressure", "pressureWarningAt", 1.01),
    ],
)
async def test_a_value_below_its_bound_rejects_the_file_and_is_named(
    start, data: Path, group: str, field: str, value: object
) -> None:
    write(data / "config.json", json.dumps({"maxHops": 7, "reliability": {group: {field: value}}}))
    relay = await start()
    (problem,) = relay.metrics().problems
    assert field in problem
    assert relay.settings.max_hops == 5


async def test_with_every_check_disabled_publishing_works(start) -> None:
    relay = await start(
        rate_limit=RateLimitConfig(enabled=False),
        circuit_breaker=CircuitBreakerConfig(enabled=False),
        backpressure=BackpressureConfig(enabled=False),
    )
    relay.register_endpoint("agent.a")
    results = await relay.publish_many(drafts(1_500))
    assert sum(one.delivered_to for one in results) == 1_500
