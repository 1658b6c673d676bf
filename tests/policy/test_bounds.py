"""Bounds: whole numbers with a unit in the name, and relations asserted at import."""

import re
from pathlib import Path

import pytest

from waypost.policy import bounds
from waypost.policy.budgets import DEFAULT_MAX_HOPS
from waypost.policy.settings import Settings, lint

BOUNDS = {name: value for name, value in vars(bounds).items() if name.islower() and name[0] != "_"}
UNITS = (
    "_ms",
    "tokens_max",
    "max_chars",
    "max_bytes",
    "max_levels",
    "max_events",
    "max_messages",
    "max_mailboxes",
    "max_operations",
    "connections_max",
    "batches_max",
    "callers_max",
    "receipts_max",
    "max_recipients",
    "headers_max",
    "frames_max",
    "fragments_max",
    "max_pairs",
    "ballast_bytes",
    "rules_max",
    "patterns_max",
    "letters_max",
    "endpoints_max",
    "endpoint_max",
    "max_deliveries",
    "subscriptions_max",
    "listeners_max",
    "chain_max",
    "replies_max",
    "identities_max",
    "webhooks_max",
    "hosts_max",
    "challenges_max",
    "minute_max",
    "second_max",
    "max_names",
    "max_keys",
    "cards_max",
    "partitions_max",
    "replicas_max",
    "skills_max",
    "memory_max",
    "number_max",
    "wait_max_s",
    "extension_max_s",
)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_a_whole_number_above_zero(name: str) -> None:
    assert type(BOUNDS[name]) is int
    assert BOUNDS[name] > 0


@pytest.mark.parametrize("name", BOUNDS)
def test_the_name_of_a_bound_has_its_unit(name: str) -> None:
    assert name.endswith(UNITS)


def test_a_subject_of_the_most_tokens_fits_into_the_longest_subject() -> None:
    dots = bounds.subject_tokens_max - 1
    assert bounds.subject_tokens_max + dots <= bounds.subject_length_max_chars


def test_a_chain_of_ancestors_is_longer_than_a_message_may_hop_by_default() -> None:
    assert bounds.ancestor_chain_max > DEFAULT_MAX_HOPS


def test_the_default_settings_are_within_the_bounds() -> None:
    assert Settings().max_payload_bytes <= bounds.payload_max_bytes
    assert lint(Settings()) == []


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("payload_inline_max_bytes", 1 << 40),
        ("ballast_bytes", 1),
        ("lease_max_messages", 1),
        ("publish_many_max_messages", 1),
    ],
)
def test_a_broken_relation_cannot_be_imported(name: str, broken: int) -> None:
    source = Path(bounds.__file__).read_text(encoding="utf-8")
    changed, count = re.subn(rf"^{name}: Final = .*$", f"{name} = {broken}", source, flags=re.M)
    assert count == 1
    with pytest.raises(AssertionError):
        exec(compile(changed, "bounds.py", "exec"), {})
