"""The public names of the package, and their signatures."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import waypost

PROMISED = {
    "Relay",
    "Settings",
    "PublishResult",
    "Rejection",
    "Envelope",
    "Budget",
    "Signal",
    "AccessRule",
    "MessagingGuard",
    "validate_subject",
    "matches_pattern",
    "RateLimitConfig",
    "CircuitBreakerConfig",
    "BackpressureConfig",
    "QosConfig",
    "TierLimits",
    "HousekeepingConfig",
    "Draft",
    "Endpoint",
    "Reason",
    "SignalType",
    "enforce_budget",
    "create_default_budget",
    "check_rate_limit",
    "resolve_limit",
    "check_backpressure",
    "CircuitBreakers",
    "load_messaging_guard_config",
    "StandardPayload",
    "Attachment",
    "ResponseContext",
    "Performative",
    "ChannelType",
    "WaypostError",
    "InvalidInput",
    "InvalidSubject",
    "InvalidMessage",
    "InvalidSettings",
    "InvalidRule",
    "AccessDenied",
    "RelayError",
    "DataDirInUse",
    "DataDirUnusable",
    "RelayStopped",
    "UnknownEndpoint",
    "RulesFileBroken",
    "RequestRejected",
    "RequestTimedOut",
}
SIGNATURES = {
    "publish": ["subject", "payload", "sender", "reply_to", "budget", "parent", "message_id"],
    "publish_many": ["drafts"],
    "request": ["subject", "payload", "sender", "timeout", "budget", "parent"],
    "subscribe": ["pattern", "handler"],
    "register_endpoint": ["subject"],
    "unregister_endpoint": ["subject"],
    "get_endpoint": ["subject"],
    "list_endpoints": [],
    "signal": ["subject", "signal"],
    "on_signal": ["pattern", "handler"],
    "lease": ["subject", "limit", "max_size_bytes", "wait"],
    "ack": ["subject", "ids"],
    "nack": ["subject", "ids", "delay"],
    "dead_letters": ["subject", "limit"],
    "redrive": ["ids", "subject"],
    "purge_dead_letters": ["older_than", "subject"],
    "explain": ["message_id"],
    "rebuild_index": [],
    "metrics": [],
}


def run(code: str) -> str:
    source = str(Path(waypost.__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_every_promised_name_is_public() -> None:
    assert set(waypost.__all__) >= PROMISED


@pytest.mark.parametrize("name", waypost.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(waypost, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = waypost.Nonsense


@pytest.mark.process
def test_a_star_import_binds_the_public_names() -> None:
    assert run("from waypost import *; print(Relay.__name__, Settings.__name__)") == (
        "Relay Settings"
    )


@pytest.mark.process
def test_importing_the_package_loads_no_relay() -> None:
    loaded = run(
        "import waypost; waypost.Settings; waypost.Envelope;"
        " print([m for m in sys.modules if m.startswith('waypost.relay') or m == 'asyncio'])"
    )
    assert loaded == "[]"


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_relay_has_the_documented_methods(name: str) -> None:
    method = getattr(waypost.Relay, name)
    parameters = list(inspect.signature(method).parameters)
    assert parameters == ["self", *SIGNATURES[name]]
    assert inspect.getdoc(method)


def test_a_relay_takes_a_directory_settings_a_clock_and_a_mailbox_factory() -> None:
    parameters = list(inspect.signature(waypost.Relay).parameters)
    assert parameters == ["data_dir", "settings", "clock", "create_mailbox"]


@pytest.mark.parametrize(
    ("struct", "fields"),
    [
        ("Endpoint", ["subject", "hash", "maildir_path", "registered_at"]),
        ("Rejection", ["endpoint_hash", "reason", "detail"]),
        (
            "PublishResult",
            [
                "message_id",
                "delivered_to",
                "rejected",
                "retry_after_ms",
                "mailbox_pressure",
                "budget_cut",
            ],
        ),
        (
            "Envelope",
            ["id", "subject", "sender", "reply_to", "budget", "created_at", "payload"],
        ),
        (
            "Budget",
            ["hop_count", "max_hops", "ancestor_chain", "ttl", "call_budget_remaining"],
        ),
        ("AccessRule", ["from_", "to", "action", "priority", "from_key"]),
    ],
)
def test_values_have_the_documented_fields(struct: str, fields: list[str]) -> None:
    assert list(getattr(waypost, struct).__struct_fields__) == fields


def test_the_test_kit_has_a_manual_clock() -> None:
    kit = import_module("waypost.testing")
    clock = kit.ManualClock(5)
    clock.advance_ms(2)
    assert clock() == 2005
