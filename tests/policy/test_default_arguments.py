"""Defaults of the pure functions, and changes of a part of a configuration."""

import pytest

from waypost import (
    DEFAULT_BP_CONFIG,
    DEFAULT_CB_CONFIG,
    DEFAULT_RATE_LIMIT_CONFIG,
    BackpressureConfig,
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    InvalidSettings,
    RateLimitConfig,
    ReliabilityConfig,
    Settings,
    check_backpressure,
    check_rate_limit,
    resolve_limit,
)
from waypost.policy.settings import to_config_document


def test_a_rate_limit_without_a_configuration_is_the_default() -> None:
    assert check_rate_limit("agent.a", 99).allowed
    assert not check_rate_limit("agent.a", 100).allowed
    assert resolve_limit("agent.a") == 100


def test_backpressure_without_a_configuration_is_the_default() -> None:
    assert check_backpressure(999).allowed
    assert not check_backpressure(1000).allowed


def test_the_defaults_are_those_of_the_settings() -> None:
    settings = Settings()
    assert settings.rate_limit == DEFAULT_RATE_LIMIT_CONFIG == RateLimitConfig()
    assert settings.circuit_breaker == DEFAULT_CB_CONFIG == CircuitBreakers().config
    assert settings.backpressure == DEFAULT_BP_CONFIG == BackpressureConfig()


def test_a_keyword_changes_one_field_of_the_breakers() -> None:
    breakers = CircuitBreakers(CircuitBreakerConfig(cooldown_ms=5000))
    breakers.update_config(failure_threshold=3)
    assert breakers.config == CircuitBreakerConfig(cooldown_ms=5000, failure_threshold=3)
    for _ in range(3):
        breakers.record_failure("agent.a", 0)
    assert breakers.state_of("agent.a") is CircuitState.OPEN


def test_a_mapping_changes_what_it_names() -> None:
    breakers = CircuitBreakers(CircuitBreakerConfig(cooldown_ms=5000), idle_ms=7)
    breakers.update_config({"failure_threshold": 3}, success_to_close=1)
    assert breakers.config == CircuitBreakerConfig(
        cooldown_ms=5000, failure_threshold=3, success_to_close=1
    )
    assert breakers.idle_ms == 7


def test_a_whole_configuration_replaces_the_old_one() -> None:
    breakers = CircuitBreakers(CircuitBreakerConfig(cooldown_ms=5000))
    breakers.update_config(CircuitBreakerConfig(failure_threshold=3))
    assert breakers.config == CircuitBreakerConfig(failure_threshold=3)


@pytest.mark.parametrize("changes", [{"failure_threshold": 0}, {"cooldown_ms": "5"}, {"limit": 3}])
def test_an_invalid_change_is_named_and_changes_nothing(changes: dict[str, object]) -> None:
    breakers = CircuitBreakers()
    with pytest.raises(InvalidSettings, match="circuit breakers"):
        breakers.update_config({"success_to_close": 9, **changes})
    assert breakers.config == DEFAULT_CB_CONFIG


def test_the_reliability_of_settings_is_one_value() -> None:
    wanted = ReliabilityConfig(rate_limit=RateLimitConfig(max_per_window=5))
    settings = Settings(max_hops=3).with_reliability(wanted)
    assert settings == Settings(max_hops=3, rate_limit=RateLimitConfig(max_per_window=5))
    assert settings.reliability == wanted
    assert to_config_document(settings)["reliability"]["rateLimit"]["maxPerWindow"] == 5
