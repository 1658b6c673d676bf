"""The choices of a simulated run: small numbers, so that every limit is reached soon."""

from typing import Any

ENDPOINTS = ("agent.a", "agent.b", "agent.c", "team.x.y")
SENDERS = ("agent.a", "agent.b", "out.s", "out.t")
PATTERNS = (*ENDPOINTS, "agent.*", "agent.>", ">", "team.*.y", "nobody.here")
IDS = ("id-1", "id-2", "id-3")
LIMITS = {
    "defaultTtlMs": 20_000,
    "defaultCallBudget": 3,
    "maxHops": 3,
    "leaseTimeoutMs": 4_000,
    "redelivery": {"maxDeliveries": 3, "firstDelayMs": 500},
    "reliability": {
        "rateLimit": {"windowSecs": 10, "maxPerWindow": 9},
        "circuitBreaker": {"failureThreshold": 2, "cooldownMs": 3_000},
        "backpressure": {"maxMailboxSize": 5},
    },
    "qos": {
        "enabled": True,
        "tier1": {"maxEnvelopes": 3, "maxBytes": 1_500},
        "tier2": {"maxEnvelopes": 4, "maxBytes": 2_000},
        "tier3": {"maxEnvelopes": 5, "maxBytes": 3_000},
        "bidirectionalWindowMs": 8_000,
        "inboxMaxBytes": 2_600,
    },
}
CHANGES: list[dict[str, Any]] = [
    {},
    {"reliability": {"backpressure": {"maxMailboxSize": 2}}},
    {"reliability": {"backpressure": {"enabled": False}}},
    {"reliability": {"rateLimit": {"maxPerWindow": 3}}},
    {"reliability": {"rateLimit": {"enabled": False}}},
    {"reliability": {"circuitBreaker": {"enabled": False}}},
    {"qos": {"enabled": False}},
    {"qos": {"overflow": "reject"}},
    {"qos": {"inboxMaxBytes": 1_200}},
    {"defaultTtlMs": 2_000, "leaseTimeoutMs": 1_000},
    {"redelivery": {"maxDeliveries": 1}},
    {"maxHops": 1},
    {"maxFanout": 2},
    {"maxHops": "many"},  # bad, so it is ignored whole
]
BUDGETS: list[dict[str, Any] | None] = [
    None,
    {"call_budget_remaining": 0},
    {"call_budget_remaining": 99},
    {"max_hops": 1},
    {"hop_count": 2},
    {"ancestor_chain": ["agent.a", "agent.c"]},
    {"ttl": 1},
]
PAUSES_MS = (0, 1, 500, 1_000, 3_000, 4_000, 8_000, 8_001, 20_000, 60_000)
DELAYS_S = (0.0, 0.0, 1.5, 6.0)
RESTARTS = ("cleanly", "cleanly, no index", "by crash", "by crash, no index")
