"""The names that the specifications give to functions and types."""

import inspect

import pytest

import waypost
from waypost import CircuitBreakers, MessagingGuard, Relay

NAMES = """
    check_rate_limit resolve_limit check_backpressure validate_subject matches_pattern
    enforce_budget create_default_budget load_messaging_guard_config
    DEFAULT_RATE_LIMIT_CONFIG DEFAULT_CB_CONFIG DEFAULT_BP_CONFIG
    RateLimitResult RateLimitConfig CircuitState CircuitBreakerState CircuitBreakerResult
    CircuitBreakerConfig BackpressureResult BackpressureConfig ReliabilityConfig PublishResult
    Performative SignalType ChannelType Attachment ResponseContext StandardPayload Signal
    MessageHandler SubscriptionInfo RelayMetrics BudgetResult SignalHandler DeadLetter AccessResult
    MessagingGuard MessagingGuardConfig GuardResult GuardRejectionReason TierLimits
    QueueStatus QueueFull
"""
METHODS = {
    Relay: "publish subscribe signal on_signal register_endpoint unregister_endpoint close",
    CircuitBreakers: "check record_success record_failure get_states reset update_config",
    MessagingGuard: "check record_success record_failure get_circuit_state reset_circuit reset_all"
    " stop",
}


@pytest.mark.parametrize("name", NAMES.split())
def test_the_names_of_the_specifications_can_be_imported(name: str) -> None:
    assert name in waypost.__all__
    assert getattr(waypost, name) is not None


@pytest.mark.parametrize("owner", METHODS)
def test_the_classes_have_the_methods_of_the_specifications(owner: type) -> None:
    for name in METHODS[owner].split():
        assert inspect.getdoc(getattr(owner, name))
