"""Messages for agents that are not there: stored, counted, delivered in order, confirmed."""

import asyncio
import base64
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.serve_process import ServeProcess, serving
from tests.specifications.served_relay import Operation, PlainAgent, ServedRelay, kinds, payloads
from waypost import BackpressureConfig, QosConfig
from waypost.client import Identity, connect
from waypost.testing import ManualClock

DAY_MS = 24 * 3_600_000
WITHOUT_QUOTAS = QosConfig(enabled=False)


@pytest.fixture
async def relay(served: ServedRelay) -> ServedRelay:
    """A relay on a port without quotas of senders."""
    return await served.start(qos=WITHOUT_QUOTAS)


async def arrive(relay: ServedRelay, subject: str = "agent.a") -> tuple[PlainAgent, int]:
    """Connect; return the agent and the number of messages that it is told of."""
    agent = await relay.connect(subject)
    return agent, (await agent.expect("queue_status"))["pending"]


async def read_all(relay: ServedRelay, subject: str = "agent.a") -> list[Any]:
    """Connect, confirm message after message until `live`, and disconnect."""
    agent, _ = await arrive(relay, subject)
    found: list[Operation] = []
    while (operation := await agent.next())["op"] != "live":
        found.append(operation)
        await agent.ack([operation])
    await agent.disconnect()
    return payloads(found)


def confirmed(operations: list[Operation]) -> list[tuple[str, bool]]:
    """Return the confirmed messages, and whether each was stored."""
    found = [one for one in operations if one["op"] == "delivery_confirm"]
    return [(one["message_id"], one["was_stored"]) for one in found]


# --- The queue -----------------------------------------------------------------------------------


async def test_messages_for_an_absent_agent_survive_a_restart_of_the_relay(
    relay: ServedRelay,
) -> None:
    await relay.store(3)
    await relay.start(qos=WITHOUT_QUOTAS)
    assert await read_all(relay) == [0, 1, 2]


async def test_beyond_a_thousand_stored_a_send_is_rejected_with_recipient_and_reason(
    relay: ServedRelay,
) -> None:
    await relay.store(1000)
    sender, _ = await arrive(relay, "agent.b")
    (*_, sent) = await sender.send("agent.a", "one too many")
    assert [one["reason"] for one in sent["rejected"]] == ["backpressure"]
    full = (await sender.until("queue_full"))[-1]
    assert (full["recipient"], full["ref"]) == ("agent.a", sent["ref"])
    assert full["reason"]
    _, pending = await arrive(relay)
    assert pending == 1000, "nothing was evicted for it"


async def test_the_cap_is_a_setting(served: ServedRelay) -> None:
    few = BackpressureConfig(max_mailbox_size=3)
    relay = await served.start(qos=WITHOUT_QUOTAS, backpressure=few)
    await relay.store(3)
    assert (await relay.publish("agent.a")).status_code == 429


async def test_every_message_is_either_delivered_or_rejected(served: ServedRelay) -> None:
    few = BackpressureConfig(max_mailbox_size=10)
    relay = await served.start(qos=WITHOUT_QUOTAS, backpressure=few)
    sender, _ = await arrive(relay, "agent.b")
    answers = [(await sender.send("agent.a", number))[-1] for number in range(25)]
    rejected = [number for number, answer in enumerate(answers) if not answer["delivered_to"]]
    assert await read_all(relay) + rejected == list(range(25))


async def test_a_message_lives_seven_days(relay: ServedRelay, clock: ManualClock) -> None:
    await relay.store(1)
    clock.advance_ms(7 * DAY_MS)
    agent, pending = await arrive(relay)
    assert pending == 1
    await agent.disconnect()
    clock.advance_ms(1)
    _, pending = await arrive(relay)
    assert pending == 0


async def test_the_time_to_live_is_a_setting(served: ServedRelay, clock: ManualClock) -> None:
    relay = await served.start(qos=WITHOUT_QUOTAS, default_ttl_ms=1_000)
    await relay.store(1)
    clock.advance_ms(1_001)
    assert await read_all(relay) == []


async def test_expired_messages_are_swept_every_five_minutes_and_logged_per_recipient(
    relay: ServedRelay, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    soon = {"ttl": clock() // 1000 + 1_000}
    for subject in ("agent.a", "agent.a", "agent.b"):
        await relay.publish(subject, budget=soon)
    with caplog.at_level("INFO", logger="waypost.relay"):
        clock.advance_ms(5 * 60_000 - 1)
        assert "expired" not in caplog.text
        clock.advance_ms(1)
    assert "expired 2 messages for agent.a" in caplog.text
    assert "expired 1 messages for agent.b" in caplog.text
    stats = (await relay.call("GET", "/v1/stats", token=relay.operator)).json()
    assert stats["total_messages"] == 0


async def test_an_expiry_sends_no_notification(relay: ServedRelay, clock: ManualClock) -> None:
    sender, _ = await arrive(relay, "agent.b")
    await sender.send("agent.a", 1)
    clock.advance_ms(8 * DAY_MS)
    assert kinds(await sender.read_until_idle()) == []


async def test_expired_messages_neither_count_nor_block(
    relay: ServedRelay, clock: ManualClock
) -> None:
    for number in range(60):
        await relay.publish("agent.a", number, budget={"ttl": clock() // 1000 + 1_000})
    await relay.store(3, first=60)
    clock.advance_ms(1_001)
    agent, pending = await arrive(relay)
    assert pending == 3
    assert payloads(await agent.read_until_idle()) == [60, 61, 62]


# --- The flush -----------------------------------------------------------------------------------


async def test_the_number_of_stored_messages_comes_first_then_the_messages_in_order(
    relay: ServedRelay,
) -> None:
    await relay.store(7)
    agent, pending = await arrive(relay)
    assert pending == 7
    assert payloads([await agent.expect("message") for _ in range(7)]) == list(range(7))


async def test_three_hundred_stored_messages_arrive_in_order(relay: ServedRelay) -> None:
    await relay.store(300)
    assert await read_all(relay) == list(range(300))


async def test_at_most_fifty_are_delivered_before_their_confirmations(relay: ServedRelay) -> None:
    await relay.store(120)
    agent, _ = await arrive(relay)
    batch = await agent.read_until_idle()
    assert payloads(batch) == list(range(50))
    await agent.ack(batch[:49])
    assert kinds(await agent.read_until_idle()) == []
    await agent.ack(batch[49:])
    assert payloads(await agent.read_until_idle()) == list(range(50, 100))


async def test_the_size_of_a_batch_is_an_option(served: ServedRelay) -> None:
    relay = await served.start(options={"batch": 7}, qos=WITHOUT_QUOTAS)
    await relay.store(10)
    agent, _ = await arrive(relay)
    assert payloads(await agent.read_until_idle()) == list(range(7))


async def test_live_follows_the_last_confirmation_and_not_before(relay: ServedRelay) -> None:
    await relay.store(3)
    agent, _ = await arrive(relay)
    batch = await agent.read_until_idle()
    await agent.ack(batch[:2])
    assert kinds(await agent.read_until_idle()) == []
    await agent.ack(batch[2:])
    assert kinds(await agent.read_until_idle()) == ["live"]


async def test_messages_sent_during_the_flush_follow_the_stored_ones(relay: ServedRelay) -> None:
    await relay.store(60)
    agent, _ = await arrive(relay)
    batch = await agent.read_until_idle()
    await relay.store(5, first=60)
    assert kinds(await agent.read_until_idle()) == []
    await agent.ack(batch)
    assert payloads(await agent.read_until_idle()) == list(range(50, 65))


async def test_a_message_sent_at_any_moment_around_the_switch_is_delivered(
    relay: ServedRelay,
) -> None:
    sender, _ = await arrive(relay, "agent.b")
    for number in range(30):
        await relay.store(2, first=1000)
        agent, _ = await arrive(relay)
        batch = [await agent.expect("message") for _ in range(2)]
        moments = [agent.ack(batch), sender.send("agent.a", number)]
        await asyncio.gather(*(moments if number % 2 else reversed(moments)))
        found: list[Operation] = []
        while not payloads(found):
            found = [one for one in [await agent.next()] if one["op"] == "message"]
        assert payloads(found) == [number]
        await agent.ack(found)
        await agent.disconnect()


async def test_a_message_leaves_only_when_it_is_confirmed(relay: ServedRelay) -> None:
    await relay.store(2)
    agent, pending = await arrive(relay)
    assert pending == 2
    assert payloads([await agent.expect("message") for _ in range(2)]) == [0, 1]
    await agent.disconnect()
    assert await read_all(relay) == [0, 1]
    assert (await arrive(relay))[1] == 0


async def test_after_a_disconnect_in_the_middle_the_rest_stays_in_order(relay: ServedRelay) -> None:
    await relay.store(120)
    agent, _ = await arrive(relay)
    await agent.ack((await agent.read_until_idle())[:10])
    await agent.read_until_idle()
    await agent.disconnect()
    assert await read_all(relay) == list(range(10, 120))


async def test_confirmations_out_of_order_leave_the_gaps_in_order(relay: ServedRelay) -> None:
    await relay.store(20)
    agent, _ = await arrive(relay)
    await agent.ack((await agent.read_until_idle())[1::2])
    await agent.read_until_idle()
    await agent.disconnect()
    assert await read_all(relay) == list(range(0, 20, 2))


async def test_an_agent_that_does_not_read_delays_no_other(relay: ServedRelay) -> None:
    await relay.store(1000, to="agent.slow")
    await relay.store(5)
    await relay.connect("agent.slow")
    assert await read_all(relay) == list(range(5))


# --- Confirmations -------------------------------------------------------------------------------


async def test_the_sender_gets_one_confirmation_that_says_live(relay: ServedRelay) -> None:
    (sender, _), (recipient, _) = await arrive(relay, "agent.b"), await arrive(relay)
    await recipient.expect("live")
    (*_, sent) = await sender.send("agent.a", 1)
    message = await recipient.expect("message")
    assert not message.get("was_stored")
    await recipient.write({"op": "ack", "ids": [message["envelope"]["id"]] * 2})
    await recipient.ack([message])
    assert confirmed(await sender.until("delivery_confirm")) == [(sent["message_id"], False)]
    assert kinds(await sender.read_until_idle()) == []


async def test_a_confirmation_says_that_the_message_was_stored(relay: ServedRelay) -> None:
    sender, _ = await arrive(relay, "agent.b")
    (*_, sent) = await sender.send("agent.a", 1)
    assert kinds(await sender.read_until_idle()) == [], "no word of its being queued"
    recipient, _ = await arrive(relay)
    message = await recipient.expect("message")
    assert message["was_stored"]
    await recipient.ack([message])
    assert confirmed(await sender.until("delivery_confirm")) == [(sent["message_id"], True)]


async def test_an_absent_sender_gets_its_confirmation_later_and_it_is_not_confirmed_itself(
    relay: ServedRelay,
) -> None:
    sender, _ = await arrive(relay, "agent.b")
    (*_, sent) = await sender.send("agent.a", 1)
    await sender.disconnect()
    assert await read_all(relay) == [1]
    sender, pending = await arrive(relay, "agent.b")
    kept = await sender.expect("delivery_confirm")
    assert (pending, confirmed([kept])) == (1, [(sent["message_id"], True)])
    await sender.write({"op": "ack", "ids": [kept["id"]]})
    await sender.expect("live")
    recipient, pending = await arrive(relay)
    assert (pending, kinds(await recipient.read_until_idle())) == (0, ["live"])


# --- Faults --------------------------------------------------------------------------------------


async def test_an_unreadable_message_does_not_stop_the_others(served: ServedRelay) -> None:
    relay = await served.start(qos=WITHOUT_QUOTAS)
    for payload in ("first", "x" * 9_000, "third"):
        await relay.publish("agent.a", payload)
    await relay.stop()
    (bodies,) = (relay.data_dir / "journal").glob("*.bodies")
    bodies.write_bytes(bytes(bodies.stat().st_size))
    await relay.start(qos=WITHOUT_QUOTAS)
    assert await read_all(relay) == ["first", "third"]
    found = (await relay.call("GET", "/v1/dead-letters", token=relay.operator)).json()
    assert ["unreadable" in one["reason"] for one in found["dead_letters"]] == [True]


@pytest.mark.process
async def test_a_killed_relay_has_kept_every_message_that_it_accepted(tmp_path: Path) -> None:
    first = ServeProcess(tmp_path / "data", tmp_path, ())
    accepted = []
    async with httpx.AsyncClient(base_url=first.url, trust_env=False) as client:
        for number in range(20):
            body = {"subject": "agent.a", "payload": number}
            accepted.append((await client.post("/v1/messages", json=body)).json()["message_id"])
    first.end(signal.SIGKILL)
    with serving(tmp_path) as second:
        async with connect(second.url, Identity.new("agent.a")) as agent:
            received = [await agent.receive(60) for _ in range(20)]
    assert [one.id for one in received] == accepted
    assert [one.payload for one in received] == list(range(20))


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "ünï\n\u2028\x00", "n": [1, -2.5, 1e300, None, True], "big": 2**63},
        base64.b64encode(bytes(range(64))).decode(),
        json.dumps({"op": "live"}),
        None,
    ],
)
async def test_payloads_are_opaque(relay: ServedRelay, payload: object) -> None:
    await relay.publish("agent.a", payload)
    assert await read_all(relay) == [payload]
