"""Waypost: a message relay for software agents.

    from waypost import Relay

    async with Relay("./data") as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", {"hello": "there"}, sender="agent.b")

Names are loaded when first used, so that a client or a Spark worker does not load the relay.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waypost.client.guard import MessagingGuard
    from waypost.policy.access import AccessResult, AccessRule
    from waypost.policy.backpressure import (
        DEFAULT_BP_CONFIG,
        BackpressureConfig,
        BackpressureResult,
        check_backpressure,
    )
    from waypost.policy.breakers import (
        DEFAULT_CB_CONFIG,
        CircuitBreakerConfig,
        CircuitBreakerResult,
        CircuitBreakers,
        CircuitBreakerState,
        CircuitState,
    )
    from waypost.policy.budgets import (
        Budget,
        BudgetCut,
        BudgetResult,
        create_default_budget,
        enforce_budget,
    )
    from waypost.policy.errors import (
        AccessDenied,
        InvalidInput,
        InvalidMessage,
        InvalidRule,
        InvalidSettings,
        InvalidSubject,
        WaypostError,
    )
    from waypost.policy.guard import (
        GuardRejectionReason,
        GuardResult,
        MessagingGuardConfig,
        load_messaging_guard_config,
    )
    from waypost.policy.rate_limits import (
        DEFAULT_RATE_LIMIT_CONFIG,
        RateLimitConfig,
        RateLimitResult,
        check_rate_limit,
        resolve_limit,
    )
    from waypost.policy.reasons import Reason
    from waypost.policy.redelivery import RedeliveryConfig
    from waypost.policy.settings import HousekeepingConfig, ReliabilityConfig, Settings
    from waypost.policy.subjects import matches_pattern, validate_subject
    from waypost.policy.tiers import QosConfig, Tier, TierLimits
    from waypost.relay.delivery.drafts import Draft
    from waypost.relay.delivery.endpoints import Endpoint
    from waypost.relay.delivery.signals import SignalHandler
    from waypost.relay.delivery.subscriptions import MessageHandler, SubscriptionInfo
    from waypost.relay.errors import (
        DataDirInUse,
        DataDirUnusable,
        JournalUnreadable,
        MailboxUnavailable,
        RelayError,
        RelayStopped,
        RulesFileBroken,
        UnknownEndpoint,
    )
    from waypost.relay.inspection.dead_letters import DeadLetter
    from waypost.relay.inspection.stats import RelayMetrics
    from waypost.relay.relay import Relay
    from waypost.wire.envelopes import Envelope
    from waypost.wire.errors import RequestFailed, RequestRejected, RequestTimedOut
    from waypost.wire.frames import QueueFull, QueueStatus
    from waypost.wire.payloads import (
        Attachment,
        ChannelType,
        Performative,
        ResponseContext,
        Signal,
        SignalType,
        StandardPayload,
    )
    from waypost.wire.results import PublishResult, Rejection

_NAMES_BY_MODULE = {
    "waypost.client.guard": ("MessagingGuard",),
    "waypost.policy.access": ("AccessResult", "AccessRule"),
    "waypost.policy.backpressure": (
        "DEFAULT_BP_CONFIG",
        "BackpressureConfig",
        "BackpressureResult",
        "check_backpressure",
    ),
    "waypost.policy.breakers": (
        "DEFAULT_CB_CONFIG",
        "CircuitBreakerConfig",
        "CircuitBreakerResult",
        "CircuitBreakers",
        "CircuitBreakerState",
        "CircuitState",
    ),
    "waypost.policy.budgets": (
        "Budget",
        "BudgetCut",
        "BudgetResult",
        "create_default_budget",
        "enforce_budget",
    ),
    "waypost.policy.errors": (
        "AccessDenied",
        "InvalidInput",
        "InvalidMessage",
        "InvalidRule",
        "InvalidSettings",
        "InvalidSubject",
        "WaypostError",
    ),
    "waypost.policy.guard": (
        "GuardRejectionReason",
        "GuardResult",
        "MessagingGuardConfig",
        "load_messaging_guard_config",
    ),
    "waypost.policy.rate_limits": (
        "DEFAULT_RATE_LIMIT_CONFIG",
        "RateLimitConfig",
        "RateLimitResult",
        "check_rate_limit",
        "resolve_limit",
    ),
    "waypost.policy.reasons": ("Reason",),
    "waypost.policy.redelivery": ("RedeliveryConfig",),
    "waypost.policy.settings": ("HousekeepingConfig", "ReliabilityConfig", "Settings"),
    "waypost.policy.subjects": ("matches_pattern", "validate_subject"),
    "waypost.policy.tiers": ("QosConfig", "Tier", "TierLimits"),
    "waypost.relay.delivery.drafts": ("Draft",),
    "waypost.relay.delivery.endpoints": ("Endpoint",),
    "waypost.relay.delivery.signals": ("SignalHandler",),
    "waypost.relay.delivery.subscriptions": ("MessageHandler", "SubscriptionInfo"),
    "waypost.relay.errors": (
        "DataDirInUse",
        "DataDirUnusable",
        "JournalUnreadable",
        "MailboxUnavailable",
        "RelayError",
        "RelayStopped",
        "RulesFileBroken",
        "UnknownEndpoint",
    ),
    "waypost.relay.inspection.dead_letters": ("DeadLetter",),
    "waypost.relay.inspection.stats": ("RelayMetrics",),
    "waypost.relay.relay": ("Relay",),
    "waypost.wire.envelopes": ("Envelope",),
    "waypost.wire.errors": ("RequestFailed", "RequestRejected", "RequestTimedOut"),
    "waypost.wire.frames": ("QueueFull", "QueueStatus"),
    "waypost.wire.payloads": (
        "Attachment",
        "ChannelType",
        "Performative",
        "ResponseContext",
        "Signal",
        "SignalType",
        "StandardPayload",
    ),
    "waypost.wire.results": ("PublishResult", "Rejection"),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - the table above is the one list of public names


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'waypost' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found
