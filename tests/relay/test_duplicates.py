"""Message ids chosen by senders: publishing one again returns the first result.

Each sender has its own ids; two senders can only collide within one mailbox.
"""

import asyncio
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import DAY_MS, events, payloads, reasons, send
from waypost import (
    BackpressureConfig,
    HousekeepingConfig,
    InvalidMessage,
    RateLimitConfig,
    Reason,
    Relay,
)
from waypost.testing import ManualClock


async def test_the_same_id_again_gives_the_same_result(relay: Relay) -> None:
    first = await send(relay, message_id="order-1")
    again = await send(relay, message_id="order-1")
    assert first.message_id == "order-1"
    assert again == first


async def test_the_same_id_again_is_stored_once(relay: Relay) -> None:
    for payload in ("first", "second"):
        await send(relay, payload, message_id="order-1")
    assert payloads(await relay.lease("agent.a")) == ["first"]


async def test_the_same_id_while_the_first_is_under_way_is_stored_once(relay: Relay) -> None:
    results = await asyncio.gather(*(send(relay, message_id="order-1") for _ in range(5)))
    assert all(result == results[0] for result in results)
    assert len(await relay.lease("agent.a")) == 1


async def test_the_same_id_twice_in_one_batch_is_stored_once(relay: Relay) -> None:
    draft = {"subject": "agent.a", "payload": 1, "sender": "agent.b", "message_id": "order-1"}
    first, again = await relay.publish_many([draft, draft])
    assert first == again
    assert len(await relay.lease("agent.a")) == 1


async def test_the_first_result_of_a_fan_out_is_returned_completely(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=2))
    relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.c")
    for _ in range(2):
        await send(relay)
    first = await send(relay, to="agent.*", message_id="news-1")
    again = await send(relay, to="agent.*", message_id="news-1")
    assert (first.delivered_to, reasons(first)) == (1, [Reason.BACKPRESSURE])
    assert again == first


async def test_the_same_id_after_its_message_was_consumed_is_not_stored_again(
    relay: Relay,
) -> None:
    await send(relay, message_id="order-1")
    await relay.lease("agent.a")
    await relay.ack("agent.a", "order-1")
    assert (await send(relay, message_id="order-1")).delivered_to == 1
    assert await relay.lease("agent.a") == []


@pytest.mark.parametrize("with_index", [True, False])
async def test_the_same_id_after_a_restart_is_stored_once(
    start, data: Path, with_index: bool
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    first = await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    await relay.close()
    if not with_index:
        (data / "index.db").unlink()
    relay = await start()
    assert await send(relay, message_id="order-1") == first
    assert await relay.lease("agent.a") == []


async def test_the_same_id_does_not_count_towards_the_rate_limit(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=2))
    relay.register_endpoint("agent.a")
    for _ in range(5):
        await send(relay, message_id="order-1")
    assert (await send(relay)).delivered_to == 1


async def test_a_rate_limited_sender_still_gets_its_first_result(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    first = await send(relay, message_id="order-1")
    assert await send(relay, message_id="order-1") == first


async def test_an_id_that_was_rate_limited_may_be_tried_again(start, clock: ManualClock) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    assert reasons(await send(relay, message_id="order-1")) == [Reason.RATE_LIMITED]
    clock.advance_ms(60_000)
    assert (await send(relay, message_id="order-1")).delivered_to == 1


async def test_an_id_that_a_full_mailbox_rejected_may_be_tried_again(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    first = await send(relay)
    assert reasons(await send(relay, message_id="order-1")) == [Reason.BACKPRESSURE]
    await relay.ack("agent.a", first.message_id)
    assert (await send(relay, message_id="order-1")).delivered_to == 1


async def test_an_id_without_a_recipient_may_be_retried(relay: Relay) -> None:
    await send(relay, to="agent.new", message_id="order-1")
    relay.register_endpoint("agent.new")
    assert (await send(relay, to="agent.new", message_id="order-1")).delivered_to == 1


async def retried(relay: Relay) -> None:
    """Publish an id that becomes a dead letter, then again so that it is stored."""
    await send(relay, "first", message_id="order-1", budget={"call_budget_remaining": 0})
    await send(relay, "second", message_id="order-1")


async def test_a_retry_that_is_stored_replaces_its_dead_letter(
    relay: Relay,
) -> None:
    await retried(relay)
    assert await relay.dead_letters() == []
    assert payloads(await relay.lease("agent.a")) == ["second"]


@pytest.mark.parametrize("with_index", [True, False])
async def test_a_second_try_is_counted_once_after_a_restart(
    start, relay: Relay, data: Path, with_index: bool
) -> None:
    await retried(relay)
    await relay.close()
    if not with_index:
        (data / "index.db").unlink()
    relay = await start()
    assert relay.metrics().by_status == {"pending": 1, "scheduled": 0, "leased": 0, "dead": 0}


async def test_a_second_try_leaves_no_file_of_the_first(relay: Relay) -> None:
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert endpoint.maildir_path is not None
    await retried(relay)
    await relay.idle()
    assert sorted(path.parent.name for path in endpoint.maildir_path.glob("*/order-1")) == ["new"]


async def test_after_the_window_an_id_is_new_again(start, clock: ManualClock) -> None:
    relay = await start(housekeeping=HousekeepingConfig(duplicate_window_ms=DAY_MS))
    relay.register_endpoint("agent.a")
    await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    clock.advance_ms(DAY_MS)
    await send(relay, message_id="order-1")
    assert await relay.lease("agent.a") == []
    clock.advance_ms(1)
    await send(relay, message_id="order-1")
    assert len(await relay.lease("agent.a")) == 1


async def test_after_the_window_an_id_is_not_kept_on_disk_either(
    start: Start, clock: ManualClock
) -> None:
    relay = await start(housekeeping=HousekeepingConfig(duplicate_window_ms=DAY_MS))
    relay.register_endpoint("agent.a")
    for message_id in ("old", "new"):
        await send(relay, message_id=message_id)
        relay.sweep()
        await relay._runtime.checkpoints._wait_until_written()  # the index is written by a thread
        clock.advance_us(DAY_MS * 1000 // 2 + 1)
    assert len(relay._runtime.index.rows("duplicates")) == 2
    await send(relay)
    relay.sweep()
    await relay._runtime.checkpoints._wait_until_written()
    [kept] = relay._runtime.index.rows("duplicates")
    assert str(kept[0]).endswith(" new")


async def test_an_id_still_waiting_is_not_stored_twice_even_after_the_window(
    start, clock: ManualClock
) -> None:
    relay = await start(
        housekeeping=HousekeepingConfig(duplicate_window_ms=1000), default_ttl_ms=DAY_MS
    )
    relay.register_endpoint("agent.a")
    await send(relay, "first", message_id="order-1")
    clock.advance_ms(60_000)
    again = await send(relay, "second", message_id="order-1")
    assert again.delivered_to == 1
    assert payloads(await relay.lease("agent.a")) == ["first"]


async def test_ids_made_by_the_relay_are_not_remembered_as_chosen(relay: Relay, data: Path) -> None:
    await send(relay)
    await send(relay, message_id="order-1")
    chosen = [event.get("chosen_id", False) for event in events(data, "accepted")]
    assert chosen == [False, True]


# Two senders and one id: agent.b, whose id it is, and agent.x, who came first


@pytest.fixture
async def two_boxes(relay: Relay) -> Relay:
    """A relay with the endpoints agent.a and agent.c."""
    relay.register_endpoint("agent.c")
    return relay


async def restarted(start: Start, data: Path, with_index: bool) -> Relay:
    """Open the relay on the same data again."""
    relay = await start()
    if not with_index:
        await relay.close()
        (data / "index.db").unlink()
        relay = await start()
    return relay


async def test_an_id_that_another_used_elsewhere_is_stored_as_if_new(two_boxes: Relay) -> None:
    await send(two_boxes, "squat", to="agent.c", sender="agent.x", message_id="order-1")
    result = await send(two_boxes, "mine", message_id="order-1")
    assert (result.message_id, result.delivered_to) == ("order-1", 1)
    assert payloads(await two_boxes.lease("agent.a")) == ["mine"]
    assert payloads(await two_boxes.lease("agent.c")) == ["squat"]


async def test_the_result_of_another_sender_with_the_same_id_is_not_disclosed(
    two_boxes: Relay,
) -> None:
    await send(two_boxes, to="agent.*", sender="agent.x", message_id="order-1")
    result = await send(two_boxes, to="agent.nobody", message_id="order-1")
    assert result.delivered_to == 0
    assert result.mailbox_pressure == {}


async def test_each_sender_gets_its_own_first_result_again(two_boxes: Relay) -> None:
    mine = await send(two_boxes, to="agent.a", message_id="order-1")
    await two_boxes.ack("agent.a", "order-1")
    others = await send(two_boxes, to="agent.*", sender="agent.x", message_id="order-1")
    assert (mine.delivered_to, others.delivered_to) == (1, 2)
    assert await send(two_boxes, message_id="order-1") == mine
    again = await send(two_boxes, to="agent.*", sender="agent.x", message_id="order-1")
    assert again == others


async def test_an_id_is_free_once_the_message_of_another_is_consumed(relay: Relay) -> None:
    await send(relay, "squat", sender="agent.x", message_id="order-1")
    await relay.ack("agent.a", "order-1")
    assert (await send(relay, "mine", message_id="order-1")).delivered_to == 1
    assert payloads(await relay.lease("agent.a")) == ["mine"]


@pytest.mark.parametrize("is_leased", [False, True])
async def test_a_mailbox_with_a_message_of_another_rejects_its_id_and_keeps_the_first(
    relay: Relay, is_leased: bool
) -> None:
    await send(relay, "first", sender="agent.x", message_id="order-1")
    if is_leased:
        await relay.lease("agent.a")
    with pytest.raises(InvalidMessage, match="message id order-1 is taken: choose another"):
        await send(relay, "second", message_id="order-1")
    if is_leased:
        await relay.nack("agent.a", "order-1")
    [kept] = await relay.lease("agent.a")
    assert (kept.sender, kept.payload) == ("agent.x", "first")


async def test_a_rejected_id_leaves_nothing_behind(relay: Relay) -> None:
    await send(relay, sender="agent.x", message_id="order-1")
    before = relay.metrics().seq
    with pytest.raises(InvalidMessage):
        await send(relay, message_id="order-1")
    assert relay.metrics().seq == before


async def test_one_mailbox_that_cannot_take_an_id_rejects_it_for_all(two_boxes: Relay) -> None:
    await send(two_boxes, to="agent.c", sender="agent.x", message_id="order-1")
    with pytest.raises(InvalidMessage):
        await send(two_boxes, to="agent.*", message_id="order-1")
    assert await two_boxes.lease("agent.a") == []


async def test_the_first_result_is_returned_though_another_has_the_id_now(relay: Relay) -> None:
    mine = await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    await send(relay, sender="agent.x", message_id="order-1")
    assert await send(relay, message_id="order-1") == mine


async def test_another_senders_dead_letter_is_not_forgotten(relay: Relay) -> None:
    overdrawn = {"call_budget_remaining": 0}
    await send(relay, "theirs", sender="agent.x", message_id="order-1", budget=overdrawn)
    for budget in (None, overdrawn):
        with pytest.raises(InvalidMessage, match="taken"):
            await send(relay, "mine", message_id="order-1", budget=budget)
    [dead_letter] = await relay.dead_letters()
    assert (dead_letter.envelope.sender, dead_letter.envelope.payload) == ("agent.x", "theirs")
    assert await relay.lease("agent.a") == []


@pytest.mark.parametrize("with_index", [True, False])
async def test_after_a_restart_the_id_of_another_still_tells_nothing(
    start: Start, two_boxes: Relay, data: Path, with_index: bool
) -> None:
    others = await send(two_boxes, to="agent.c", sender="agent.x", message_id="order-1")
    relay = await restarted(start, data, with_index)
    assert (await send(relay, "mine", message_id="order-1")).delivered_to == 1
    assert payloads(await relay.lease("agent.a")) == ["mine"]
    again = await send(relay, to="agent.c", sender="agent.x", message_id="order-1")
    assert again == others


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("budget", [None, {"call_budget_remaining": 0}])
async def test_after_a_restart_the_id_of_another_is_still_rejected(
    start: Start, relay: Relay, data: Path, with_index: bool, budget: dict[str, int] | None
) -> None:
    await send(relay, sender="agent.x", message_id="order-1", budget=budget)
    before = relay.metrics().by_status
    relay = await restarted(start, data, with_index)
    with pytest.raises(InvalidMessage, match="taken"):
        await send(relay, message_id="order-1")
    assert relay.metrics().by_status == before


@pytest.mark.parametrize("taken_by", ["a message that waits", "one before it in the batch"])
async def test_a_batch_with_a_taken_id_fails_before_any_of_it_is_stored(
    two_boxes: Relay, taken_by: str
) -> None:
    other = {"subject": "agent.a", "payload": 1, "sender": "agent.x", "message_id": "order-1"}
    if taken_by == "a message that waits":
        await two_boxes.publish(**other)
        other = {"subject": "agent.a", "payload": 2, "sender": "agent.x"}
    waiting = two_boxes.metrics().by_status["pending"]
    clash = {"subject": "agent.*", "payload": 3, "sender": "agent.b", "message_id": "order-1"}
    with pytest.raises(InvalidMessage, match="order-1 is taken"):
        await two_boxes.publish_many([other, clash])
    assert two_boxes.metrics().by_status["pending"] == waiting


async def test_a_mailbox_created_on_demand_does_not_take_an_id_twice(start) -> None:
    relay: Relay = await start(create_mailbox=lambda one: bool(relay.register_endpoint(one)))
    relay.register_endpoint("agent.a")
    await send(relay, "first", sender="agent.x", message_id="order-1")
    relay.unregister_endpoint("agent.a")
    with pytest.raises(InvalidMessage, match="order-1 is taken"):
        await send(relay, "second", message_id="order-1")
    assert payloads(await relay.lease("agent.a")) == ["first"]
