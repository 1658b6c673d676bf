"""The public names of the package and their signatures, as the page of names lists them."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import waypost
import waypost.client
from tests.e2e.specification_page import NONE, PAGE, rows
from waypost import MessagingGuardConfig, Settings, load_messaging_guard_config
from waypost.policy.settings import to_config_document
from waypost.relay.data_dir import DataDir
from waypost.server.http.operations import OPERATIONS
from waypost.wire.frames import FromAgent, FromRelay

ROWS = rows()
METRICS = (PAGE.parent / "metrics.md").read_text(encoding="utf-8")

SIGNATURES = {
    "publish": [
        "subject",
        "payload",
        "sender",
        "reply_to",
        "budget",
        "parent",
        "message_id",
        "thread",
        "delay",
        "deliver_at",
    ],
    "publish_many": ["drafts"],
    "request": ["subject", "payload", "sender", "timeout", "budget", "parent", "thread"],
    "subscribe": ["pattern", "handler"],
    "register_endpoint": ["subject"],
    "unregister_endpoint": ["subject"],
    "get_endpoint": ["subject"],
    "list_endpoints": [],
    "signal": ["subject", "signal"],
    "on_signal": ["pattern", "handler"],
    "lease": ["subject", "limit", "max_size_bytes", "wait"],
    "ack": ["subject", "ids"],
    "nack": ["subject", "ids", "delay", "error"],
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


def is_python(name: str) -> bool:
    """Return whether a name leads from `waypost` or `waypost.client` to an object, and whether that
    takes the argument in parentheses."""
    path, _, argument = name.removesuffix(")").partition("(")
    package: Any = waypost.client if path.startswith("client.") else waypost
    first, *rest = path.removeprefix("client.").split(".")
    if first not in package.__all__:
        return False
    found = getattr(package, first)
    for part in rest:
        if isinstance(found, property):
            found = get_type_hints(found.fget)["return"]
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return not argument or argument in inspect.signature(found).parameters


def is_config_key(name: str) -> bool:
    found: Any = to_config_document(Settings())
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def is_file(name: str) -> bool:
    return name in {path.name for path in vars(DataDir("data")).values() if isinstance(path, Path)}


def is_variable(name: str) -> bool:
    return load_messaging_guard_config({name: "7"}) != MessagingGuardConfig()


def is_metric(name: str) -> bool:
    return f"| `{name}` |" in METRICS


def is_http(name: str) -> bool:
    return name in {f"{one.method} {one.path}" for one in OPERATIONS}


def is_operation(name: str) -> bool:
    kinds = (*get_args(FromRelay), *get_args(FromAgent))
    return name in {one.__struct_config__.tag for one in kinds}


EXISTS: dict[str, Callable[[str], bool]] = {
    "Python": is_python,
    "key of `config.json`": is_config_key,
    "file in the data directory": is_file,
    "variable": is_variable,
    "metric": is_metric,
    "HTTP": is_http,
    "operation on the wire": is_operation,
}


def test_the_page_has_a_table_of_every_kind() -> None:
    assert {row.kind for row in ROWS} == EXISTS.keys()
    assert len(ROWS) > 150


@pytest.mark.parametrize(
    ("kind", "name"), sorted({(row.kind, name) for row in ROWS for name in row.names})
)
def test_every_name_on_the_page_exists(kind: str, name: str) -> None:
    assert EXISTS[kind](name)


@pytest.mark.parametrize("kind", EXISTS)
def test_a_name_that_does_not_exist_is_found_out(kind: str) -> None:
    assert not EXISTS[kind]("Relay.nonsense")
    assert not EXISTS[kind]("Relay.publish(nonsense)")


def test_every_name_of_a_specification_has_a_counterpart_or_a_reason() -> None:
    lost = [row.specified for row in ROWS if not row.names and (row.ours != NONE or not row.note)]
    assert lost == []


def test_no_name_of_a_specification_is_listed_twice() -> None:
    listed = [(row.kind, row.specified) for row in ROWS]
    assert sorted({one for one in listed if listed.count(one) > 1}) == []


def test_every_public_name_is_on_the_page() -> None:
    shown = {re.split(r"[.(]", name)[0] for row in ROWS for name in row.names}
    assert sorted(set(waypost.__all__) - shown) == []


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
    of_a_cluster = ["ownership", "partition"]
    assert parameters == ["data_dir", "settings", "clock", "create_mailbox", *of_a_cluster]


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
                "never_connected",
            ],
        ),
        (
            "Envelope",
            [
                "id",
                "subject",
                "sender",
                "reply_to",
                "thread",
                "answer",
                "attempt",
                "budget",
                "created_at",
                "payload",
            ],
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
