"""Limits of connected senders: full mailboxes, quotas by tier, time to live."""

import logging

import pytest

from tests.server.sessions.memory_server import (
    ConnectedAgent,
    MemoryServer,
    ServerLauncher,
    kinds,
    numbers,
)
from tests.server.sessions.raw_agent import rejected_with
from waypost import BackpressureConfig, QosConfig, RateLimitConfig
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT, TierLimits
from waypost.server.context import SERVED_SETTINGS
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.problems import QUEUE_FULL_TEXT

DAY_MS = 24 * 3_600_000
QUIET = QosConfig(enabled=False)


async def rejections(agent: ConnectedAgent, subject: str, count: int) -> list[str]:
    """Send `count` messages and return the reasons of the rejections."""
    found = []
    for number in range(count):
        answer, *_ = await agent.send(subject, number)
        if isinstance(answer, frames.SendResult) and answer.rejected:
            found.append(rejected_with(answer))
    return found


# A full mailbox


async def test_beyond_a_thousand_pending_a_send_is_rejected_with_queue_full(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(qos=QosConfig(enabled=True))
    server.store(1000)
    sent, full = await server.connect("agent.b").send("agent.a", "one too many")
    assert rejected_with(sent) == "backpressure"
    assert isinstance(full, frames.QueueFull)
    assert (full.recipient, full.reason) == ("agent.a", QUEUE_FULL_TEXT)
    assert server.relay.metrics().total_messages == 1000


async def test_messages_in_flight_to_a_flushing_recipient_count_against_the_cap(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(backpressure=BackpressureConfig(max_mailbox_size=60), qos=QUIET)
    server.store(60)
    await server.wait_until_idle()
    agent, sender = server.connect(), server.connect("agent.b")
    batch = await agent.read_messages()
    assert kinds(await sender.send("agent.a", "x")) == ["SendResult", "QueueFull"]
    agent.ack(batch[:1])
    assert kinds(await sender.send("agent.a", "y")) == ["SendResult"]
    agent.ack(batch[1:])
    rest = await agent.read_messages()
    assert numbers(rest) == [*range(50, 60), "y"]


async def test_every_message_is_either_delivered_or_rejected(launcher: ServerLauncher) -> None:
    server = await launcher.open(backpressure=BackpressureConfig(max_mailbox_size=10), qos=QUIET)
    sender = server.connect("agent.b")
    rejected = [number for number in range(25) if len(await sender.send("agent.a", number)) == 2]
    assert numbers(await server.connect().read()) + rejected == list(range(25))


async def test_senders_do_not_see_mailbox_pressure(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(backpressure=BackpressureConfig(max_mailbox_size=5), qos=QUIET)
    sender = server.connect("agent.b")
    await sender.read()
    for number in range(6):
        sender.put("agent.a", number)
    received = await sender.read()
    assert kinds(received) == ["SendResult"] * 6 + ["QueueFull"]
    sent = [one for one in received if isinstance(one, frames.SendResult)]
    assert [one.mailbox_pressure for one in sent] == [{}] * 6
    assert sent[-1].rejected[0].detail == QUEUE_FULL_TEXT


async def test_an_operator_may_show_pressure_to_connected_senders(launcher: ServerLauncher) -> None:
    server = await launcher.open(backpressure=BackpressureConfig(max_mailbox_size=5), qos=QUIET)
    sender = server.connect("agent.b", show_pressure=True)
    for number in range(5):
        sender.put("agent.a", number)
    received = await sender.read()
    sent = [one for one in received if isinstance(one, frames.SendResult)]
    assert list(sent[-1].mailbox_pressure.values()) == [0.8]
    assert "Signalled" in kinds(received)


# Quotas


async def test_at_most_twenty_messages_of_an_unknown_sender_are_pending(
    server: MemoryServer,
) -> None:
    assert await rejections(server.connect("agent.b"), "agent.a", 25) == ["quota_exceeded"] * 5


async def test_quotas_are_the_same_after_a_reconnect_and_after_a_restart(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open()
    agent = server.connect("agent.b")
    assert await rejections(agent, "agent.a", 20) == []
    agent.disconnect()
    assert await rejections(server.connect("agent.b"), "agent.a", 1) == ["quota_exceeded"]
    server = await launcher.open()
    assert await rejections(server.connect("agent.b"), "agent.a", 1) == ["quota_exceeded"]


async def test_confirmed_messages_free_the_quota(server: MemoryServer) -> None:
    sender = server.connect("agent.b")
    await rejections(sender, "agent.a", 20)
    agent = server.connect()
    agent.ack((await agent.read_messages())[:3])
    assert await rejections(sender, "agent.a", 5) == ["quota_exceeded"] * 2


async def test_expired_messages_free_the_quota(server: MemoryServer, clock: ManualClock) -> None:
    sender = server.connect("agent.b")
    await rejections(sender, "agent.a", 20)
    clock.advance_ms(7 * DAY_MS + 1)
    assert await rejections(sender, "agent.a", 21) == ["quota_exceeded"]


async def test_a_reply_raises_the_tier_of_the_sender(server: MemoryServer) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await rejections(sender, "agent.a", 20)
    await recipient.send("agent.b", "a reply")
    assert await rejections(sender, "agent.a", 30) == []


async def test_an_old_reply_still_grants_the_second_tier(
    server: MemoryServer, clock: ManualClock
) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await recipient.send("agent.b", "a reply")
    clock.advance_ms(8 * DAY_MS)
    assert await rejections(sender, "agent.a", 103) == ["quota_exceeded"] * 3


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_a_quota_rejection_has_the_same_text_in_every_tier(
    launcher: ServerLauncher, clock: ManualClock, tier: int
) -> None:
    few = TierLimits(2, 10_000)
    server = await launcher.open(qos=QosConfig(enabled=True, tier1=few, tier2=few, tier3=few))
    sender, recipient = server.connect("agent.b"), server.connect()
    if tier > 1:
        await recipient.send("agent.b", "a reply")
    if tier == 2:
        clock.advance_ms(8 * DAY_MS)
    await rejections(sender, "agent.a", 2)
    (rejection,) = await sender.send("agent.a", 3)
    assert isinstance(rejection, frames.SendResult)
    assert (rejection.delivered_to, rejection.retry_after_ms, rejection.mailbox_pressure) == (
        0,
        0,
        {},
    )
    assert [(one.reason, one.detail) for one in rejection.rejected] == [
        ("quota_exceeded", QUOTA_EXCEEDED_TEXT)
    ]
    assert server.relay._runtime.ledger.state.counts["rejected.quota_exceeded"] == 1


async def test_the_sender_of_an_evicted_message_is_notified_and_it_is_a_dead_letter(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(qos=QosConfig(enabled=True, inbox_max_bytes=30_000))
    heavy, light = server.connect("agent.heavy"), server.connect("agent.light")
    (first,) = await heavy.send("agent.a", "x" * 12_000)
    await heavy.send("agent.a", "y" * 12_000)
    await light.send("agent.a", "z" * 9_000)
    (received,) = [one for one in await heavy.read() if isinstance(one, frames.Signalled)]
    assert isinstance(first, frames.SendResult)
    assert (received.sender, received.signal.state, received.signal.endpoint_subject) == (
        "",
        "evicted",
        "agent.a",
    )
    assert received.signal.data["message_id"] == first.message_id
    assert [one.envelope.id for one in await server.relay.dead_letters()] == [first.message_id]
    assert await light.read() == []


async def test_the_rate_limit_holds_across_connections_and_reports_retry_after(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(rate_limit=RateLimitConfig(max_per_window=3, window_secs=10))
    agent = server.connect("agent.b")
    assert await rejections(agent, "agent.a", 3) == []
    agent.disconnect()
    (answer,) = await server.connect("agent.b").send("agent.a", 4)
    assert rejected_with(answer) == "rate_limited"
    assert isinstance(answer, frames.SendResult)
    assert 0 < answer.retry_after_ms <= 10_000


# Time to live


async def test_messages_expire_after_exactly_seven_days(
    server: MemoryServer, clock: ManualClock
) -> None:
    server.store(1)
    await server.wait_until_idle()
    clock.advance_ms(7 * DAY_MS)
    agent = server.connect()
    assert numbers(await agent.read()) == [0]
    agent.disconnect()
    clock.advance_ms(1)
    assert await server.connect().read() == [frames.QueueStatus(pending=0), frames.Live()]


async def test_expired_messages_are_swept_every_five_minutes_and_counted_per_recipient(
    server: MemoryServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert SERVED_SETTINGS.housekeeping.sweep_interval_ms == 5 * 60_000
    soon = {"ttl": clock() // 1000 + 1_000}
    for number in range(3):
        server.publish(number, budget=soon)
    server.publish("other", to="agent.b", budget=soon)
    with caplog.at_level(logging.INFO, "waypost.relay"):
        clock.advance_ms(5 * 60_000 - 1)
        assert "expired" not in caplog.text
        clock.advance_ms(1)
    assert "expired 3 messages for agent.a" in caplog.text
    assert "expired 1 messages for agent.b" in caplog.text
    assert server.relay.metrics().total_messages == 0


async def test_an_expiry_sends_no_notification(server: MemoryServer, clock: ManualClock) -> None:
    sender = server.connect("agent.b")
    await sender.send("agent.a", 1)
    clock.advance_ms(8 * DAY_MS)
    assert await sender.read() == []
    assert await server.relay.dead_letters() == []
