"""Messages that another process puts into a mailbox, the Maildir way."""

import asyncio
import json
import os
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.relay.observing import UNLIMITED, events, files, payloads, read, send
from waypost import (
    AccessRule,
    BackpressureConfig,
    CircuitBreakerConfig,
    Endpoint,
    RateLimitConfig,
    Relay,
)
from waypost.testing import ManualClock

DROPPED = {"sender": "agent.b", "payload": {"n": 1}}


def drop(endpoint: Endpoint, name: str, content: object) -> None:
    """Do what another process does: write to `tmp/`, rename to `new/`."""
    assert endpoint.maildir_path is not None
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    unfinished = endpoint.maildir_path / "tmp" / name
    unfinished.write_bytes(raw)
    unfinished.rename(endpoint.maildir_path / "new" / name)


def rejection(endpoint: Endpoint, name: str) -> dict[str, Any]:
    assert endpoint.maildir_path is not None
    content: dict[str, Any] = json.loads((endpoint.maildir_path / "failed" / name).read_bytes())
    return content


@pytest.fixture
async def endpoint(start) -> Endpoint:
    """An endpoint of a closed relay."""
    relay: Relay = await start()
    registered = relay.register_endpoint("agent.a")
    await relay.close()
    return registered


async def test_a_file_dropped_while_the_relay_runs_is_taken(start) -> None:
    relay = await start(watch_files=True)
    endpoint = relay.register_endpoint("agent.a")
    drop(endpoint, "from-outside", DROPPED)
    await eventually(lambda: relay.metrics().by_status["pending"], "the dropped message")
    await relay.idle()
    (envelope,) = await relay.lease("agent.a")
    assert (envelope.id, envelope.subject) == ("from-outside", "agent.a")
    assert (envelope.sender, envelope.payload) == ("agent.b", {"n": 1})


async def test_a_file_dropped_into_a_mailbox_registered_later_is_taken(start) -> None:
    relay = await start(watch_files=True)
    drop(relay.register_endpoint("agent.first"), "one", DROPPED)
    await eventually(lambda: relay.metrics().by_status["pending"] == 1, "the first message")
    drop(relay.register_endpoint("agent.second"), "two", DROPPED)
    await eventually(lambda: relay.metrics().by_status["pending"] == 2, "the second message")


async def test_files_dropped_while_the_relay_was_away_are_taken_at_its_start(
    start, endpoint: Endpoint
) -> None:
    for number in (2, 1, 3):
        drop(endpoint, f"drop-{number}", {**DROPPED, "payload": number})
    relay = await start()
    await relay.idle()
    assert payloads(await relay.lease("agent.a")) == [1, 2, 3]


async def test_a_drop_in_is_delivered_to_a_handler(start, endpoint: Endpoint) -> None:
    drop(endpoint, "from-outside", DROPPED)
    relay = await start()
    seen: list[object] = []
    relay.subscribe("agent.a", lambda envelope: seen.append(envelope.payload))
    await relay.idle()
    assert seen == [{"n": 1}]
    assert files(endpoint) == {"cur": [], "failed": [], "new": [], "tmp": []}


async def test_a_dropped_message_may_bring_a_reply_address_and_a_budget(
    start, endpoint: Endpoint, clock: ManualClock
) -> None:
    ttl = clock() // 1000 + 5_000
    drop(endpoint, "drop-1", {**DROPPED, "reply_to": "agent.b", "budget": {"ttl": ttl}})
    relay = await start()
    await relay.idle()
    (envelope,) = await relay.lease("agent.a")
    assert (envelope.reply_to, envelope.budget.ttl) == ("agent.b", ttl)


async def test_a_file_whose_name_is_not_a_valid_id_gets_one(start, endpoint: Endpoint) -> None:
    drop(endpoint, "1700000000.M1P2.host:2,S", DROPPED)
    relay = await start()
    await relay.idle()
    (envelope,) = await relay.lease("agent.a")
    assert envelope.id.startswith("drop-")
    await relay.ack("agent.a", envelope.id)
    await relay.idle()
    assert files(endpoint)["new"] == []


async def test_a_dropped_message_is_taken_once_whatever_its_name(start, endpoint: Endpoint) -> None:
    for name in ("plain", "1700000000.M1P2.host"):
        drop(endpoint, name, DROPPED)
    for _ in range(3):
        relay = await start()
        await relay.idle()
        assert relay.metrics().by_status["pending"] == 2


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"",
        b"[]",
        b'{"payload": 1}',
        b'{"sender": "agent.b"}',
        b'{"sender": "not a subject", "payload": 1}',
        b'{"sender": "agent.b", "payload": 1, "budget": {"ttl": "soon"}}',
        b'{"sender": "agent.b", "payload": "\xff"}',
        b'{"sender": "agent.b", "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"sender": "agent.b", "payload": ' + b"[" * 100 + b"]" * 100 + b"}",
        b"\xff\xfe\x00",
    ],
    ids=lambda content: content[:40],
)
async def test_a_rejected_file_is_in_failed_with_its_reason(
    start, endpoint: Endpoint, content: bytes
) -> None:
    drop(endpoint, "bad", content)
    relay = await start()
    await relay.idle()
    assert files(endpoint)["new"] == []
    rejected = rejection(endpoint, "bad")
    assert rejected["reason"]
    assert rejected["content"] == content.decode(errors="replace")
    assert await relay.lease("agent.a") == []


async def test_a_bad_file_does_not_block_good_ones(start, endpoint: Endpoint) -> None:
    drop(endpoint, "a-bad", b"not json")
    drop(endpoint, "b-good", DROPPED)
    relay = await start()
    await relay.idle()
    assert len(await relay.lease("agent.a")) == 1


async def test_a_bad_file_dropped_while_the_relay_runs_does_not_block_later_ones(start) -> None:
    relay = await start(watch_files=True)
    endpoint = relay.register_endpoint("agent.a")
    drop(endpoint, "bad", b'{"sender": "agent.b", "payload": ' + b"[" * 5000)
    await eventually(lambda: files(endpoint)["failed"], "the refusal")
    drop(endpoint, "good", DROPPED)
    await eventually(lambda: relay.metrics().by_status["pending"], "the good one")


async def test_a_directory_among_the_files_is_left_alone(start, endpoint: Endpoint) -> None:
    assert endpoint.maildir_path is not None
    os.mkdir(endpoint.maildir_path / "new" / "folder")
    drop(endpoint, "good", DROPPED)
    relay = await start()
    await relay.idle()
    assert len(await relay.lease("agent.a")) == 1


@pytest.mark.parametrize("watching", [True, False])
async def test_links_pipes_and_huge_files_are_neither_read_nor_waited_for(
    start, tmp_path: Path, watching: bool, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"sender": "agent.b", "payload": "secret"}))
    relay: Relay = await start(watch_files=watching)
    endpoint = relay.register_endpoint("agent.a")
    assert endpoint.maildir_path is not None
    await relay.idle()
    tmp, new = endpoint.maildir_path / "tmp", endpoint.maildir_path / "new"
    os.symlink(secret, tmp / "a-link")
    os.mkfifo(tmp / "b-pipe")
    (tmp / "c-huge").touch()
    os.truncate(tmp / "c-huge", 1 << 40)
    for name in ("a-link", "b-pipe", "c-huge"):
        os.rename(tmp / name, new / name)
    drop(endpoint, "d-good", DROPPED)
    if not watching:
        relay = await start()
    await eventually(lambda: relay.metrics().by_status["pending"], "the good one")
    await relay.idle()
    assert payloads(await relay.lease("agent.a")) == [{"n": 1}]
    assert files(endpoint)["failed"] == ["c-huge"]
    assert secret.exists()
    assert "'c-huge' for agent.a not read: larger than" in caplog.text


async def test_a_dropped_message_is_rate_limited_like_any_other(start, endpoint: Endpoint) -> None:
    for name in ("first", "second"):
        drop(endpoint, name, DROPPED)
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await relay.idle()
    assert files(endpoint)["new"] == ["first"]
    assert rejection(endpoint, "second")["reason"].startswith("rate_limited: rate limit exceeded")


async def test_a_dropped_message_for_a_full_mailbox_is_rejected(start, endpoint: Endpoint) -> None:
    for name in ("first", "second"):
        drop(endpoint, name, DROPPED)
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    await relay.idle()
    assert rejection(endpoint, "second")["reason"].startswith("backpressure: ")
    assert await relay.dead_letters() == []


async def test_a_dropped_message_that_rules_deny_is_rejected(
    start, relay: Relay, clock: ManualClock
) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    endpoint = relay.register_endpoint("agent.a")
    await relay.close()
    drop(endpoint, "forbidden", DROPPED)
    again = await start()
    await again.idle()
    assert "access rules" in rejection(endpoint, "forbidden")["reason"]


async def test_a_rejected_file_is_kept_after_another_start(start, endpoint: Endpoint) -> None:
    for name in ("first", "second"):
        drop(endpoint, name, DROPPED)
    drop(endpoint, "bad", b"not json")
    for _ in range(2):
        await start(rate_limit=RateLimitConfig(max_per_window=1))
    assert files(endpoint)["failed"] == ["bad", "second"]


async def test_a_rejected_file_may_be_dropped_in_again(
    start, endpoint: Endpoint, clock: ManualClock
) -> None:
    limits = {"rate_limit": RateLimitConfig(max_per_window=1)}
    for name in ("first", "second"):
        drop(endpoint, name, DROPPED)
    relay = await start(**limits)
    await relay.close()
    clock.advance_ms(60_000)
    drop(endpoint, "second", DROPPED)
    relay = await start(**limits)
    await relay.idle()
    assert [one.id for one in await relay.lease("agent.a")] == ["first", "second"]


async def test_files_of_the_relay_itself_are_not_taken_for_drop_ins(start, data: Path) -> None:
    relay = await start(watch_files=True, rate_limit=UNLIMITED)
    endpoint = relay.register_endpoint("agent.a")
    for number in range(30):
        await send(relay, number)
        leased = await relay.lease("agent.a")
        relay._runtime.claims.ack("agent.a", [leased[0].id])
        relay._runtime.drop_ins.scan(endpoint.hash)  # its file is still in new/ at this point
    await relay.idle()
    assert relay.metrics().total_messages == 0
    assert events(data, "rejected") == []


async def test_files_of_other_processes_are_never_written(start, endpoint: Endpoint) -> None:
    """Another process may have the file open, or under another name."""
    assert endpoint.maildir_path is not None
    drop(endpoint, "bad", b"not json")
    os.chmod(endpoint.maildir_path / "new" / "bad", 0o666)
    kept = endpoint.maildir_path.parent.parent / "kept-by-its-owner"
    os.link(endpoint.maildir_path / "new" / "bad", kept)
    relay = await start(circuit_breaker=CircuitBreakerConfig(enabled=False))
    await relay.idle()
    await send(relay, "private")
    await relay.idle()
    (name,) = files(endpoint)["new"]
    mode = os.stat(endpoint.maildir_path / "new" / name).st_mode
    assert read(kept) == "not json"
    assert stat.S_IMODE(mode) == 0o600


async def test_the_file_of_a_dead_letter_is_not_overwritten(start, endpoint: Endpoint) -> None:
    relay: Relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "first", sender="agent.x", message_id="order-1", budget={"ttl": 1})
    await relay.idle()
    before = rejection(endpoint, "order-1")
    await relay.close()
    drop(endpoint, "order-1", DROPPED)
    relay = await start()
    await relay.idle()
    assert rejection(endpoint, "order-1") == before
    (beside,) = (endpoint.maildir_path or Path()).glob("failed/order-1.*")
    assert "order-1 is taken" in rejection(endpoint, beside.name)["reason"]
    assert files(endpoint)["new"] == []


async def test_other_tasks_run_while_many_mailboxes_are_searched_at_the_start(
    start, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = await start()
    for n in range(1000):
        relay.register_endpoint(f"agent.a{n}")
    turn = 0
    searched: Counter[int] = Counter()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and str(path).endswith("/new"):
            searched[turn] += 1
        return real(path)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(os, "scandir", scandir)
    counting = asyncio.create_task(count_turns())
    await start()
    counting.cancel()
    assert searched.total() == 1000
    assert max(searched.values()) <= 50
