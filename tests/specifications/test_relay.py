"""Mailboxes, signals, access rules and the relay as a whole, as a library."""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.relay.observing import drafts, payloads, read, reasons, send, tree
from waypost import (
    AccessDenied,
    AccessRule,
    Attachment,
    Budget,
    ChannelType,
    InvalidInput,
    InvalidMessage,
    Performative,
    Relay,
    ResponseContext,
    Signal,
    SignalType,
    StandardPayload,
    matches_pattern,
)
from waypost.testing import ManualClock

NOW_MS = 1_700_000_000_000
FEW = settings(max_examples=15)
"""Each example opens a relay."""
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
TOKENS = st.sampled_from(["a", "b", "c", "*", ">"])
PATTERNS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
LITERALS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
LIBRARY = """
import asyncio, sys
from waypost import Relay

async def main():
    async with Relay(sys.argv[1]) as relay:
        relay.register_endpoint("agent.a")
        print((await relay.publish("agent.a", 1, sender="agent.b")).delivered_to)
    print([one for one in sys.modules if one.startswith(("waypost.server", "waypost.client"))])

asyncio.run(main())
"""


@pytest.fixture
async def relay(start) -> Relay:
    """A relay with the default limits and one endpoint, `agent.a`."""
    opened: Relay = await start()
    opened.register_endpoint("agent.a")
    return opened


# --- Endpoints, subscriptions, mailboxes ---------------------------------------------------------


def instant(clock: ManualClock) -> datetime:
    return datetime.fromtimestamp(clock() / 1_000_000, UTC)


async def test_an_endpoint_has_subject_hash_path_and_time(
    relay: Relay, data: Path, clock: ManualClock
) -> None:
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert endpoint.subject == "agent.a"
    assert endpoint.hash == hashlib.sha256(b"agent.a").hexdigest()[:12]
    assert endpoint.maildir_path == data / "mailboxes" / endpoint.hash
    assert endpoint.registered_at == instant(clock)
    relay.unregister_endpoint("agent.a")
    assert (relay.get_endpoint("agent.a"), relay.list_endpoints()) == (None, [])


async def test_subscriptions_are_listed_with_pattern_and_time(
    relay: Relay, clock: ManualClock
) -> None:
    for pattern in ("agent.*", "agent.a"):
        relay.subscribe(pattern, lambda envelope: None)
    listed = relay.list_subscriptions()
    assert [one.pattern for one in listed] == ["agent.*", "agent.a"]
    assert {one.created_at for one in listed} == {instant(clock)}


async def test_a_file_of_a_mailbox_is_the_envelope_under_its_ulid(relay: Relay) -> None:
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert endpoint.maildir_path is not None
    result = await send(relay, {"hello": "there"}, reply_to="agent.b")
    await relay.idle()
    assert ULID.fullmatch(result.message_id)
    found = json.loads(read(endpoint.maildir_path / "new" / result.message_id))
    (envelope,) = await relay.lease("agent.a")
    fields = {"id", "subject", "sender", "reply_to", "budget", "created_at", "payload"}
    leased = msgspec.to_builtins(envelope, builtin_types=(datetime,))
    assert {name: found[name] for name in fields} == json.loads(
        msgspec.json.encode({name: leased[name] for name in fields})
    )


async def test_ids_sort_in_the_order_of_the_messages_within_a_millisecond_too(
    relay: Relay, clock: ManualClock
) -> None:
    ids: list[str] = []
    for step_ms in (0, 0, 1, 0, 5):
        clock.advance_ms(step_ms)
        ids += [one.message_id for one in await relay.publish_many(drafts(20, to="agent.nobody"))]
    assert (sorted(ids), len(set(ids))) == (ids, 100)
    assert all(ULID.fullmatch(one) for one in ids)


async def test_the_index_has_a_row_for_each_message(
    relay: Relay, data: Path, clock: ManualClock
) -> None:
    sent = [(await send(relay, number)).message_id for number in range(2)]
    await send(relay, budget={"call_budget_remaining": 0}, message_id="dead")
    await relay.lease("agent.a", limit=1)
    await relay.rebuild_index()
    with closing(sqlite3.connect(data / "index.db")) as index:
        columns = "id, endpoint, sender, status, at_us, ttl_ms"
        found = index.execute(f"select {columns} from messages order by ordering").fetchall()
    common = ("agent.a", "agent.b")
    times = (clock(), clock() // 1000 + 3_600_000)
    assert found == [
        (sent[0], *common, "cur", *times),
        (sent[1], *common, "new", *times),
        ("dead", *common, "failed", *times),
    ]


async def test_rebuilding_the_index_leaves_the_messages_as_they_were(
    relay: Relay, data: Path
) -> None:
    for number in range(5):
        await send(relay, number)
    await send(relay, budget={"call_budget_remaining": 0})
    before = relay.metrics()
    assert await relay.rebuild_index() == 6
    assert (relay.metrics().by_status, relay.metrics().endpoints) == (
        before.by_status,
        before.endpoints,
    )
    assert payloads(await relay.lease("agent.a")) == list(range(5))


@pytest.mark.parametrize("text", ["x'; DROP TABLE messages; --", 'a"b', "a/../b", ".", "..", "a b"])
async def test_no_name_or_id_can_hold_sql_or_a_path(relay: Relay, data: Path, text: str) -> None:
    before = tree(data)
    for attempt in (
        lambda: relay.publish(text, 1, sender="agent.b"),
        lambda: relay.publish("agent.a", 1, sender=text),
        lambda: relay.publish("agent.a", 1, sender="agent.b", message_id=text),
    ):
        with pytest.raises(InvalidInput):
            await attempt()
    with pytest.raises(InvalidInput):
        relay.register_endpoint(text)
    assert tree(data) == before


# --- Signals and dead letters --------------------------------------------------------------------


def signal_of(**changes: Any) -> Signal:
    fields = {
        "type": SignalType.TYPING,
        "state": "active",
        "endpoint_subject": "agent.a",
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Signal(**{**fields, **changes})


@FEW
@given(patterns=st.lists(PATTERNS, max_size=6), subject=LITERALS)
async def test_signals_reach_the_listeners_whose_patterns_match_token_by_token(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[str], subject: str
) -> None:
    valid = [one for one in patterns if ">" not in one.split(".")[:-1]]
    heard: list[str] = []
    async with Relay(tmp_path_factory.mktemp("data"), clock=ManualClock()) as relay:
        for pattern in valid:
            relay.on_signal(pattern, lambda subject, signal, pattern=pattern: heard.append(pattern))
        relay.signal(subject, signal_of())
        await relay.idle()
    assert sorted(heard) == sorted(one for one in valid if matches_pattern(subject, one))


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "shouting"},
        {"state": 5},
        {"endpoint_subject": None},
        {"timestamp": "yesterday"},
        {"data": object()},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_signal_with_a_wrong_field_is_rejected(
    relay: Relay, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidMessage, match="invalid signal"):
        relay.signal("agent.a", signal_of(**changes))


async def test_the_number_of_listeners_is_bounded(relay: Relay) -> None:
    for _ in range(10_000):
        relay.on_signal("agent.a", lambda subject, signal: None)
    with pytest.raises(InvalidInput, match="10,000"):
        relay.on_signal("agent.a", lambda subject, signal: None)


async def test_a_dead_letter_has_envelope_reason_time_and_endpoint(
    relay: Relay, clock: ManualClock
) -> None:
    rejected = await send(relay, "late", budget={"call_budget_remaining": 0})
    assert reasons(rejected) == ["budget_exceeded"]
    (dead,) = await relay.dead_letters("agent.a")
    assert (dead.envelope.id, dead.envelope.payload) == (rejected.message_id, "late")
    assert (dead.reason, dead.failed_at) == ("call budget exhausted", instant(clock))
    assert dead.endpoint_hash == relay.register_endpoint("agent.a").hash


# --- Access rules --------------------------------------------------------------------------------


async def test_the_highest_priority_that_matches_decides_and_is_named(relay: Relay) -> None:
    low, high = (
        AccessRule("agent.*", "agent.>", "deny", 1),
        AccessRule("agent.b", "agent.a", "allow", 10),
    )
    assert relay.access.check_access("agent.b", "agent.a").allowed, "without rules"
    relay.access.add_rule(low)
    relay.access.add_rule(high)
    assert relay.access.list_rules() == [high, low]
    decided = relay.access.check_access("agent.b", "agent.a")
    assert (decided.allowed, decided.matched_rule) == (True, high)
    decided = relay.access.check_access("agent.c", "agent.a")
    assert (decided.allowed, decided.matched_rule) == (False, low)
    assert relay.access.check_access("other.c", "agent.a").matched_rule is None


async def test_removing_a_rule_leaves_the_others(relay: Relay) -> None:
    first, second = (
        AccessRule("agent.b", "agent.a", "deny", 1),
        AccessRule("agent.c", "agent.a", "deny", 1),
    )
    for one in (first, second):
        relay.access.add_rule(one)
    assert relay.access.remove_rule("agent.b", "agent.a")
    assert relay.access.list_rules() == [second]
    assert (await send(relay)).delivered_to == 1
    with pytest.raises(AccessDenied):
        await send(relay, sender="agent.c")


async def test_the_file_of_rules_is_replaced_not_written_over(relay: Relay, data: Path) -> None:
    file = data / "access-rules.json"
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny", 1))
    with file.open("rb") as before:
        content = before.read()
        relay.access.add_rule(AccessRule("agent.c", "agent.a", "deny", 1))
        before.seek(0)
        assert before.read() == content, "a reader of the old file sees all of it"
        assert os.fstat(before.fileno()).st_ino != file.stat().st_ino
    assert len(json.loads(file.read_bytes())) == 2
    assert [one for one in tree(data) if "access-rules" in one] == ["access-rules.json"]


# --- The relay as a whole ------------------------------------------------------------------------


async def test_an_envelope_has_sender_subject_reply_address_payload_budget_and_time(
    relay: Relay, clock: ManualClock
) -> None:
    result = await send(relay, {"n": 1}, reply_to="agent.b.replies", budget={"max_hops": 2})
    (envelope,) = await relay.lease("agent.a")
    assert (envelope.id, envelope.subject) == (result.message_id, "agent.a")
    assert (envelope.sender, envelope.reply_to) == ("agent.b", "agent.b.replies")
    assert (envelope.payload, envelope.created_at) == ({"n": 1}, instant(clock))
    assert envelope.budget == Budget(
        hop_count=1,
        max_hops=2,
        ancestor_chain=("agent.a",),
        ttl=clock() // 1000 + 3_600_000,
        call_budget_remaining=9,
    )


@pytest.mark.process
def test_the_relay_is_a_library_that_needs_no_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["1", "[]"]


# --- Shared types --------------------------------------------------------------------------------


FULL = StandardPayload(
    content="Deployed.",
    sender_name="Ada",
    sender_avatar="ada.png",
    channel_name="releases",
    channel_type=ChannelType.THREAD,
    attachments=[Attachment(path="/tmp/log", filename="log", mime_type="text/plain", size=3)],
    response_context=ResponseContext(
        platform="terminal", max_length=80, supported_formats=["text"], instructions="be brief"
    ),
    performative=Performative.INFORM,
    conversation_id="c-1",
    correlation_id="r-1",
    platform_data={"thread_ts": 1.5},
)


@pytest.mark.parametrize("payload", [FULL, StandardPayload(content="short")])
async def test_a_standard_payload_arrives_with_the_fields_that_were_given(
    relay: Relay, payload: StandardPayload
) -> None:
    await send(relay, payload)
    (envelope,) = await relay.lease("agent.a")
    assert msgspec.convert(envelope.payload, StandardPayload) == payload
    given_fields = {
        name for name in payload.__struct_fields__ if getattr(payload, name) is not None
    }
    assert set(envelope.payload) == given_fields


@FEW
@given(
    payload=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
async def test_any_json_value_arrives_as_it_was_sent(
    tmp_path_factory: pytest.TempPathFactory, payload: Any
) -> None:
    async with Relay(tmp_path_factory.mktemp("data"), clock=ManualClock()) as relay:
        relay.register_endpoint("agent.a")
        await send(relay, payload)
        assert payloads(await relay.lease("agent.a")) == [payload]


def test_the_values_of_performatives_channels_and_signals() -> None:
    performatives = "request inform query propose accept reject cfp failure"
    signals = "typing presence read_receipt delivery_receipt progress backpressure"
    assert [str(one) for one in Performative] == performatives.split()
    assert [str(one) for one in ChannelType] == ["dm", "group", "channel", "thread"]
    assert {str(one) for one in SignalType} == set(signals.split())
