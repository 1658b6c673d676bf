"""The state of a relay after a close or a crash, with and without its index."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.relay.observing import UNLIMITED, drafts, events, payloads, reasons, send
from waypost import (
    CircuitBreakerConfig,
    Envelope,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Reason,
    Relay,
    RequestTimedOut,
    Settings,
    TierLimits,
    UnknownEndpoint,
)
from waypost.testing import ManualClock

Reopen = Callable[..., Awaitable[Relay]]


@pytest.fixture(params=["index kept", "index deleted"])
def reopen(request: pytest.FixtureRequest, start, data: Path) -> Reopen:
    """Close a relay, and open its directory again."""

    async def close_and_open(relay: Relay, **fields: object) -> Relay:
        await relay.close()
        if request.param == "index deleted":
            (data / "index.db").unlink()
        reopened: Relay = await start(**fields)
        return reopened

    return close_and_open


async def test_pending_messages_keep_their_order(relay: Relay, reopen: Reopen) -> None:
    for number in range(5):
        await send(relay, number)
    relay = await reopen(relay)
    assert payloads(await relay.lease("agent.a")) == [0, 1, 2, 3, 4]


async def test_an_envelope_is_the_same_to_the_last_field(relay: Relay, reopen: Reopen) -> None:
    await send(relay, {"deep": [1, None, "ü"]}, reply_to="agent.b", budget={"max_hops": 2})
    before = await relay.lease("agent.a")
    relay = await reopen(relay)
    assert await relay.lease("agent.a") == before


async def test_messages_in_many_segments_are_all_found(start, reopen: Reopen) -> None:
    keep = HousekeepingConfig(segment_max_bytes=4096)
    relay = await start(rate_limit=UNLIMITED, housekeeping=keep)
    relay.register_endpoint("agent.a")
    for number in range(60):
        await send(relay, [number, "x" * 300])
    relay = await reopen(relay, rate_limit=UNLIMITED)
    assert [payload[0] for payload in payloads(await relay.lease("agent.a", limit=100))] == list(
        range(60)
    )


async def test_endpoints_are_registered_since_the_same_time(
    relay: Relay, reopen: Reopen, clock: ManualClock
) -> None:
    clock.advance_ms(1000)
    relay.register_endpoint("agent.c")
    before = relay.list_endpoints()
    clock.advance_ms(1000)
    relay = await reopen(relay)
    assert relay.list_endpoints() == before


async def test_an_unregistered_endpoint_stays_unregistered(relay: Relay, reopen: Reopen) -> None:
    relay.unregister_endpoint("agent.a")
    relay = await reopen(relay)
    assert relay.list_endpoints() == []
    with pytest.raises(UnknownEndpoint):
        await relay.lease("agent.a")


async def test_messages_of_an_unregistered_endpoint_are_kept(relay: Relay, reopen: Reopen) -> None:
    await send(relay, "kept")
    relay.unregister_endpoint("agent.a")
    relay = await reopen(relay)
    relay.register_endpoint("agent.a")
    assert payloads(await relay.lease("agent.a")) == ["kept"]


async def test_an_acknowledged_message_stays_removed(relay: Relay, reopen: Reopen) -> None:
    first = await send(relay, 1)
    await send(relay, 2)
    await relay.ack("agent.a", first.message_id)
    relay = await reopen(relay)
    assert payloads(await relay.lease("agent.a")) == [2]


async def test_leases_return_to_their_old_queue_positions(relay: Relay, reopen: Reopen) -> None:
    for number in range(4):
        await send(relay, number)
    before = await relay.lease("agent.a", limit=2)
    relay = await reopen(relay)
    after = await relay.lease("agent.a")
    assert payloads(after) == [0, 1, 2, 3]
    assert after[:2] == before


async def test_a_lease_from_before_may_still_be_acknowledged(relay: Relay, reopen: Reopen) -> None:
    await send(relay)
    (leased,) = await relay.lease("agent.a")
    relay = await reopen(relay)
    assert await relay.ack("agent.a", leased.id) == 1


async def test_a_delay_from_before_is_still_kept(
    relay: Relay, reopen: Reopen, clock: ManualClock
) -> None:
    await send(relay, "patience")
    (leased,) = await relay.lease("agent.a")
    await relay.nack("agent.a", leased.id, delay=60)
    relay = await reopen(relay)
    assert await relay.lease("agent.a") == []
    clock.advance_ms(60_000)
    assert payloads(await relay.lease("agent.a")) == ["patience"]


async def test_a_handler_runs_when_a_delay_from_an_earlier_run_ends(
    relay: Relay, reopen: Reopen, clock: ManualClock
) -> None:
    await send(relay, "patience")
    (leased,) = await relay.lease("agent.a")
    await relay.nack("agent.a", leased.id, delay=60)
    relay = await reopen(relay)
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    await relay.idle()
    assert seen == []
    clock.advance_ms(60_000)
    await relay.idle()
    assert payloads(seen) == ["patience"]


async def test_a_returned_message_keeps_its_position(relay: Relay, reopen: Reopen) -> None:
    for number in range(3):
        await send(relay, number)
    got = await relay.lease("agent.a", limit=2)
    await relay.nack("agent.a", got[0].id)
    await relay.ack("agent.a", got[1].id)
    relay = await reopen(relay)
    assert payloads(await relay.lease("agent.a")) == [0, 2]


async def test_dead_letters_are_the_same(relay: Relay, reopen: Reopen, clock: ManualClock) -> None:
    await send(relay, 1, budget={"call_budget_remaining": 0})
    clock.advance_ms(500)
    await send(relay, 2, budget={"ttl": 1})
    before = await relay.dead_letters()
    relay = await reopen(relay)
    assert await relay.dead_letters() == before


async def test_a_redriven_message_keeps_its_new_position(relay: Relay, reopen: Reopen) -> None:
    dead = await send(relay, "again", budget={"call_budget_remaining": 0})
    await send(relay, "first")
    await relay.redrive(dead.message_id)
    relay = await reopen(relay)
    assert payloads(await relay.lease("agent.a")) == ["first", "again"]


async def test_a_purged_dead_letter_stays_purged(relay: Relay, reopen: Reopen) -> None:
    await send(relay, budget={"call_budget_remaining": 0})
    await relay.purge_dead_letters()
    relay = await reopen(relay)
    assert await relay.dead_letters() == []


async def test_rate_windows_continue_after_a_restart(
    start, reopen: Reopen, clock: ManualClock
) -> None:
    fields = {"rate_limit": RateLimitConfig(max_per_window=3)}
    relay = await start(**fields)
    relay.register_endpoint("agent.a")
    await send(relay)
    clock.advance_ms(20_000)
    await send(relay)
    relay = await reopen(relay, **fields)
    assert (await send(relay)).delivered_to == 1
    rejected = await send(relay)
    assert (reasons(rejected), rejected.retry_after_ms) == ([Reason.RATE_LIMITED], 40_000)


async def test_rate_windows_survive_several_restarts(start, reopen: Reopen) -> None:
    fields = {"rate_limit": RateLimitConfig(max_per_window=3)}
    relay = await start(**fields)
    relay.register_endpoint("agent.a")
    for _ in range(3):
        assert (await send(relay)).delivered_to == 1
        relay = await reopen(relay, **fields)
    assert reasons(await send(relay)) == [Reason.RATE_LIMITED]


async def test_a_fan_out_from_before_counts_once(start, reopen: Reopen) -> None:
    fields = {"rate_limit": RateLimitConfig(max_per_window=2)}
    relay = await start(**fields)
    for number in range(4):
        relay.register_endpoint(f"agent.{number}")
    await send(relay, to="agent.*")
    relay = await reopen(relay, **fields)
    assert (await send(relay, to="agent.*")).delivered_to == 4


async def test_last_seen_pairs_survive_a_restart(start, reopen: Reopen) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(0, 0), tier3=TierLimits(1, 10_000))
    relay = await start(qos=qos)
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    assert reasons(await send(relay, to="agent.b", sender="agent.a")) == [Reason.QUOTA_EXCEEDED]
    relay = await reopen(relay, qos=qos)
    assert (await send(relay)).delivered_to == 1


async def test_the_share_of_each_sender_is_counted_again(start, reopen: Reopen) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(2, 10_000))
    relay = await start(qos=qos)
    relay.register_endpoint("agent.a")
    for _ in range(2):
        await send(relay)
    relay = await reopen(relay, qos=qos)
    assert reasons(await send(relay)) == [Reason.QUOTA_EXCEEDED]


async def test_the_counts_of_every_mailbox_are_the_same(relay: Relay, reopen: Reopen) -> None:
    relay.register_endpoint("agent.c")
    await relay.publish_many([*drafts(3), *drafts(2, to="agent.c", sender="agent.d")])
    await send(relay, budget={"call_budget_remaining": 0})
    before = relay.metrics()
    relay = await reopen(relay)
    after = relay.metrics()
    assert after.endpoints == before.endpoints
    assert after.by_status == before.by_status


async def test_breakers_start_closed(start, reopen: Reopen) -> None:
    fields = {"circuit_breaker": CircuitBreakerConfig(failure_threshold=1)}
    relay = await start(**fields)
    relay.register_endpoint("agent.a")

    def fail(envelope: Envelope) -> None:
        raise ValueError

    relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    assert reasons(await send(relay)) == [Reason.CIRCUIT_OPEN]
    relay = await reopen(relay, **fields)
    assert (await send(relay)).delivered_to == 1


async def test_events_go_on_being_numbered_without_gaps(
    relay: Relay, reopen: Reopen, data: Path
) -> None:
    await send(relay)
    relay = await reopen(relay)
    await send(relay)
    numbers = [event["seq"] for event in events(data)]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_journal_times_do_not_go_back_with_the_clock(
    relay: Relay, data: Path, clock: ManualClock
) -> None:
    await send(relay)
    await relay.close()
    behind = ManualClock(clock() - 60_000_000)
    async with Relay(data, settings=Settings(watch_files=False), clock=behind) as again:
        await send(again)
    times = [event["at_us"] for event in events(data)]
    assert times == sorted(times)
    assert times[-1] == clock()


async def test_opening_twice_and_closing_twice_is_harmless(relay: Relay) -> None:
    assert await relay.open() is relay
    await relay.close()
    await relay.close()


async def test_a_message_of_a_handler_interrupted_by_a_crash_is_a_dead_letter(
    start, data: Path, tmp_path: Path, clock: ManualClock
) -> None:
    relay = await start(durability="fsync")
    relay.register_endpoint("agent.a")
    began, may_end = asyncio.Event(), asyncio.Event()

    async def work(envelope: Envelope) -> None:
        began.set()
        await may_end.wait()

    relay.subscribe("agent.a", work)
    await send(relay, "half done")
    await began.wait()
    unfinished = shutil.ignore_patterns("*.tmp")  # a thread may be about to rename it
    crashed = shutil.copytree(data, tmp_path / "as the crash left it", ignore=unfinished)
    may_end.set()
    async with Relay(crashed, settings=Settings(watch_files=False), clock=clock) as after:
        (dead_letter,) = await after.dead_letters()
        assert dead_letter.envelope.payload == "half done"
        assert dead_letter.reason.startswith("interrupted: the relay stopped while its handler")
        assert await after.lease("agent.a") == []


async def test_closing_leaves_no_task_and_no_thread_behind(data: Path) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    async with Relay(data, settings=Settings(), clock=ManualClock()) as relay:
        relay.register_endpoint("agent.a")
        relay.subscribe("agent.a", lambda envelope: None)
        await send(relay)
        await relay.idle()
        assert asyncio.all_tasks() > tasks
        assert any(thread.name == "waypost-journal" for thread in threading.enumerate())
    assert asyncio.all_tasks() == tasks
    left = {one.name for one in set(threading.enumerate()) - threads}
    assert not any(name.startswith("waypost") for name in left)


async def test_without_a_clock_of_its_own_a_relay_waits_in_real_time(data: Path) -> None:
    settings = Settings(watch_files=False, lease_timeout_ms=20)
    async with Relay(data, settings=settings) as relay:
        relay.register_endpoint("agent.a")
        assert await relay.lease("agent.a", wait=0.01) == []
        await send(relay)
        [first] = await relay.lease("agent.a")
        [again] = await relay.lease("agent.a", wait=10)
        assert (again.id, again.attempt) == (first.id, 2)
        with pytest.raises(RequestTimedOut):
            await relay.request("agent.a", None, sender="agent.b", timeout=0.01)
