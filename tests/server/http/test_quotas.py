"""Quotas of senders in one inbox, over HTTP."""

from collections.abc import Mapping

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.policy.tiers import QosConfig, TierLimits
from waypost.relay.state.mailbox import Mailbox
from waypost.wire.envelopes import encode_envelope

NONE = TierLimits(0, 0)
PLENTY = TierLimits(1000, 10_000_000)
WINDOW_MS = 60_000


def qos(limits: TierLimits = PLENTY, **fields: object) -> QosConfig:
    tiers = {"tier1": limits, "tier2": limits, "tier3": limits}
    return QosConfig(**{"enabled": True, "bidirectional_window_ms": WINDOW_MS, **tiers, **fields})


async def know_each_other(served: HttpRelay, sender: str, recipient: str, tier: int) -> None:
    """Exchange messages until two agents are in a tier."""
    if tier == 1:
        return
    tokens = {one: await served.token(one) for one in (sender, recipient)}
    await served.publish(sender, token=tokens[recipient])
    if tier == 2:
        served.clock.advance_ms(WINDOW_MS + 1)


def usage(mailbox: Mailbox) -> tuple[int, int, Mapping[str, tuple[int, int]]]:
    """Count messages and bytes from the stored messages."""
    by_sender: dict[str, tuple[int, int]] = {}
    for message in mailbox.live.values():
        count, size = by_sender.get(message.sender, (0, 0))
        by_sender[message.sender] = (count + 1, size + message.size)
    return len(mailbox.live), sum(m.size for m in mailbox.live.values()), by_sender


def kept(mailbox: Mailbox) -> tuple[int, int, Mapping[str, tuple[int, int]]]:
    """Return the counts that the relay keeps."""
    occupancy = mailbox.occupancy
    return occupancy.depth, occupancy.bytes, occupancy.by_sender


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_a_quota_rejection_has_the_same_text_in_every_tier(serve: Serve, tier: int) -> None:
    served = await serve(qos=qos(NONE))
    await know_each_other(served, "agent.a", "agent.b", tier)
    rejected = await served.publish("agent.b", token=await served.token("agent.a"))
    assert rejected.status_code == 429
    assert rejected.content == b'{"error":"sender quota exceeded for this inbox"}'
    assert dict(rejected.headers) == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "content-type": "application/json",
        "content-length": "48",
    }
    assert served.relay.metrics().rejected["quota_exceeded"] >= 1


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_a_quota_rejection_among_many_has_the_same_text_in_every_tier(
    serve: Serve, tier: int
) -> None:
    served = await serve(qos=qos(NONE))
    await know_each_other(served, "agent.a", "agent.b", tier)
    body = {"messages": [{"subject": "agent.b", "payload": 1, "message_id": "m1"}]}
    token = await served.token("agent.a")
    answered = await served.call("POST", "/v1/messages", token=token, json=body)
    [result] = answered.json()["results"]
    [rejected] = result.pop("rejected")
    assert result == {
        "message_id": "m1",
        "delivered_to": 0,
        "retry_after_ms": 0,
        "mailbox_pressure": {},
    }
    assert rejected["detail"] == "sender quota exceeded for this inbox"


@pytest.mark.parametrize(("tier", "limit"), [(1, 2), (2, 4), (3, 6)])
async def test_each_tier_is_accepted_up_to_its_limit(serve: Serve, tier: int, limit: int) -> None:
    tiers = {f"tier{n}": TierLimits(2 * n, 10_000_000) for n in (1, 2, 3)}
    served = await serve(qos=qos(**tiers))
    await know_each_other(served, "agent.a", "agent.b", tier)
    token = await served.token("agent.a")
    statuses = [(await served.publish("agent.b", token=token)).status_code for _ in range(8)]
    assert statuses == [200] * limit + [429] * (8 - limit)


@pytest.mark.parametrize(("room", "status"), [(0, 200), (-1, 429)])
async def test_exactly_at_the_byte_limit_is_accepted(serve: Serve, room: int, status: int) -> None:
    measured = await serve()
    await measured.publish("agent.b", "x" * 100, message_id="m1")
    [size] = [
        m.size for m in measured.relay._runtime.ledger.state.mailboxes["agent.b"].live.values()
    ]
    await measured.relay.lease("agent.b")
    await measured.relay.ack("agent.b", "m1")
    limits = TierLimits(10, size + room)
    config = {"qos": {"tier1": {"maxEnvelopes": 10, "maxBytes": limits.max_bytes}}}
    await measured.call("PUT", "/v1/config", token=measured.operator, json=config)
    sent = await measured.publish("agent.b", "x" * 100, message_id="m2")
    assert sent.status_code == status


async def test_anonymous_senders_share_one_quota(serve: Serve) -> None:
    served = await serve(qos=qos(tier1=TierLimits(2, 10_000_000)))
    assert [(await served.publish("agent.b")).status_code for _ in range(3)] == [200, 200, 429]


async def test_a_drained_inbox_accepts_more(serve: Serve) -> None:
    served = await serve(qos=qos(TierLimits(1, 10_000)))
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    first = await served.publish("agent.b", token=token_a)
    [got] = await served.read("agent.b", token=token_b)
    assert (await served.publish("agent.b", token=token_a)).status_code == 429
    await served.ack("agent.b", [got["id"]], token=token_b)
    again = await served.publish("agent.b", token=token_a)
    assert (first.status_code, again.status_code) == (200, 200)


async def test_a_size_limit_leaves_larger_messages_in_place_and_in_order(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    for payload in ("small 1", "large 1 " * 500, "small 2", "large 2 " * 500):
        await served.publish("agent.b", payload)
    small = await served.read("agent.b", token=token, max_size_bytes=2000)
    rest = await served.read("agent.b", token=token)
    assert [one["payload"] for one in small] == ["small 1", "small 2"]
    assert [one["payload"][:7] for one in rest] == ["large 1", "large 2"]


async def test_a_message_of_exactly_the_size_limit_is_leased(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "x" * 50)
    mailbox = served.relay._runtime.ledger.state.mailboxes["agent.b"]
    [size] = [message.size for message in mailbox.live.values()]
    assert await served.read("agent.b", token=token, max_size_bytes=size - 1) == []
    [got] = await served.read("agent.b", token=token, max_size_bytes=size)
    assert got["payload"] == "x" * 50


async def test_usage_equals_a_recount_through_drain_and_expiry(serve: Serve) -> None:
    served = await serve(default_ttl_ms=60_000)
    tokens = {one: await served.token(one) for one in ("agent.a", "agent.b", "agent.c")}
    mailbox = None
    for n in range(12):
        sender = ("agent.a", "agent.c")[n % 2]
        await served.publish("agent.b", "x" * 37 * n, token=tokens[sender])
    mailbox = served.relay._runtime.ledger.state.mailboxes["agent.b"]
    assert kept(mailbox) == usage(mailbox)
    got = await served.read("agent.b", token=tokens["agent.b"], limit=5)
    await served.ack("agent.b", [one["id"] for one in got[:3]], token=tokens["agent.b"])
    assert kept(mailbox) == usage(mailbox)
    assert mailbox.occupancy.depth == 9
    served.clock.advance_ms(60_001)
    served.relay.sweep()
    assert kept(mailbox) == usage(mailbox) == (0, 0, {})


async def test_the_byte_cap_evicts_the_oldest_of_the_heaviest_with_a_notice(serve: Serve) -> None:
    served = await serve(qos=qos(inbox_max_bytes=5000))
    heard: list[tuple[str, str]] = []
    served.relay.on_signal(">", lambda subject, signal: heard.append((subject, signal.state)))
    light, heavy = await served.token("agent.light"), await served.token("agent.heavy")
    await served.publish("agent.b", "early", token=light)
    first = await served.publish("agent.b", "x" * 1500, token=heavy)
    await served.publish("agent.b", "y" * 1500, token=heavy)
    await served.publish("agent.b", "z" * 1000, token=light)
    await served.publish("agent.b", "late", token=light)
    got = await served.read("agent.b", token=await served.token("agent.b"))
    assert [one["payload"][:5] for one in got] == ["early", "yyyyy", "zzzzz", "late"]
    assert heard == [("agent.heavy", "evicted")]
    [dead] = await served.relay.dead_letters("agent.b")
    assert dead.envelope.id == first.json()["message_id"]


async def test_the_size_that_counts_is_that_of_the_whole_envelope(served: HttpRelay) -> None:
    await served.publish("agent.b", {"text": "grüße"})
    mailbox = served.relay._runtime.ledger.state.mailboxes["agent.b"]
    [message] = mailbox.live.values()
    assert message.size == len(
        encode_envelope(served.relay._runtime.payloads.stored_envelope(message))
    )
