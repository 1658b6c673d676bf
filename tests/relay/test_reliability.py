"""Backpressure and circuit breakers as callers see them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.observing import events, files, payloads, reasons, send
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    Endpoint,
    Envelope,
    QosConfig,
    Reason,
    Relay,
    Signal,
    SignalType,
    TierLimits,
)
from waypost.testing import ManualClock

FRAGILE = CircuitBreakerConfig(failure_threshold=3, cooldown_ms=10_000, success_to_close=2)


class Moody:
    """A handler that fails while `fails` is set."""

    def __init__(self) -> None:
        self.fails = True
        self.handled = 0
        self.stop: Callable[[], None] = lambda: None

    def __call__(self, envelope: Envelope) -> None:
        self.handled += 1
        if self.fails:
            raise RuntimeError("bad mood")


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
async def opened(start, moody: Moody) -> Relay:
    """A relay whose breaker for `agent.a` has just opened."""
    relay = await start(circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    moody.stop = relay.subscribe("agent.a", moody)
    for _ in range(3):
        await send(relay)
        await relay.idle()
    return relay


def state_of(relay: Relay, endpoint: str = "agent.a") -> str:
    breaker = relay.metrics().breakers.get(endpoint)
    return breaker.state if breaker else "CLOSED"


async def test_a_full_mailbox_accepts_nothing_more(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=2))
    endpoint = relay.register_endpoint("agent.a")
    results = [await send(relay) for _ in range(3)]
    await relay.idle()
    assert [reasons(result) for result in results] == [[], [], [Reason.BACKPRESSURE]]
    assert results[2].rejected[0].detail == "backpressure: mailbox full (2/2)"
    assert len(files(endpoint)["new"]) == 2


async def test_leased_messages_count_towards_the_limit(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    result = await send(relay)
    await relay.lease("agent.a")
    full = await send(relay)
    await relay.ack("agent.a", result.message_id)
    assert reasons(full) == [Reason.BACKPRESSURE]
    assert (await send(relay)).delivered_to == 1


async def test_room_freed_by_expiry_is_room_at_once(start, clock: ManualClock) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1), default_ttl_ms=60_000)
    relay.register_endpoint("agent.a")
    await send(relay)
    clock.advance_ms(60_001)
    assert (await send(relay)).delivered_to == 1


async def test_backpressure_does_not_make_a_dead_letter(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    await send(relay)
    assert await relay.dead_letters() == []


async def listen(relay: Relay, sender: str = "agent.b") -> list[Signal]:
    heard: list[Signal] = []
    relay.on_signal(sender, lambda subject, signal: heard.append(signal))
    return heard


async def test_from_the_warning_level_on_the_sender_hears_of_the_pressure(start) -> None:
    relay = await start(
        backpressure=BackpressureConfig(max_mailbox_size=4, pressure_warning_at=0.5)
    )
    relay.register_endpoint("agent.a")
    heard = await listen(relay)
    for _ in range(2):
        await send(relay)
    assert heard == []
    await send(relay)
    (signal,) = heard
    assert (signal.type, signal.state) == (SignalType.BACKPRESSURE, "warning")
    assert signal.endpoint_subject == "agent.a"
    assert signal.data == {"pressure": 0.5, "current_size": 2, "max_mailbox_size": 4}


async def test_a_sender_rejected_by_a_full_mailbox_hears_that_it_is_critical(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    heard = await listen(relay)
    await send(relay)
    await send(relay)
    assert [signal.state for signal in heard] == ["critical"]
    assert heard[0].data["pressure"] == 1.0


NEARLY_FULL = BackpressureConfig(max_mailbox_size=4, pressure_warning_at=0.5)


@pytest.mark.parametrize("reason", ["quota_exceeded", "backpressure", "budget_exceeded"])
async def test_another_rejection_below_the_cap_is_signalled_as_a_warning(start, reason) -> None:
    quotas = {
        "quota_exceeded": QosConfig(enabled=True, tier1=TierLimits(2, 9999)),
        "backpressure": QosConfig(enabled=True, inbox_max_bytes=700, overflow="reject"),
        "budget_exceeded": QosConfig(),
    }
    relay = await start(backpressure=NEARLY_FULL, qos=quotas[reason])
    relay.register_endpoint("agent.a")
    heard = await listen(relay)
    for _ in range(2):
        await send(relay)
    rejected = await send(relay, budget={"call_budget_remaining": 0})
    assert reasons(rejected) == [reason]
    assert [signal.state for signal in heard] == ["warning"]


async def test_an_open_breaker_below_the_cap_is_signalled_as_a_warning(start, moody) -> None:
    relay = await start(backpressure=NEARLY_FULL, circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    moody.stop = relay.subscribe("agent.a", moody)
    for _ in range(3):
        await send(relay)
        await relay.idle()
    moody.stop()
    await relay.redrive([one.envelope.id for one in await relay.dead_letters()])
    heard = await listen(relay)
    assert reasons(await send(relay)) == [Reason.CIRCUIT_OPEN]
    assert [signal.state for signal in heard] == ["warning"]


async def test_pressure_is_signalled_to_the_sender_only(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    heard = await listen(relay, "agent.bystander")
    await send(relay)
    await send(relay)
    assert heard == []


async def test_the_breaker_opens_after_so_many_failures_in_a_row(opened: Relay) -> None:
    result = await send(opened)
    assert reasons(result) == [Reason.CIRCUIT_OPEN]
    assert result.rejected[0].detail == "circuit open for endpoint agent.a"
    assert result.retry_after_ms == 10_000


async def test_one_success_among_failures_keeps_the_breaker_closed(start, moody: Moody) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    relay.subscribe("agent.a", moody)
    for fails in (True, True, False, True, True):
        moody.fails = fails
        await send(relay)
        await relay.idle()
    assert (await send(relay)).delivered_to == 1


async def test_an_open_breaker_stores_nothing_and_makes_no_dead_letter(
    opened: Relay, moody: Moody
) -> None:
    endpoint = opened.get_endpoint("agent.a")
    assert endpoint is not None
    dead_letters = len(await opened.dead_letters())
    await send(opened)
    await opened.idle()
    assert files(endpoint)["new"] == []
    assert len(await opened.dead_letters()) == dead_letters
    assert moody.handled == 3


async def test_an_open_breaker_affects_no_other_endpoint(opened: Relay) -> None:
    opened.register_endpoint("agent.c")
    result = await send(opened, to="agent.*")
    assert result.delivered_to == 1
    assert reasons(result) == [Reason.CIRCUIT_OPEN]


async def test_the_breaker_stays_open_until_the_cooldown_ends(
    opened: Relay, clock: ManualClock
) -> None:
    clock.advance_ms(9_999)
    early = await send(opened)
    clock.advance_ms(1)
    assert (reasons(early), early.retry_after_ms) == ([Reason.CIRCUIT_OPEN], 1)
    assert (await send(opened)).delivered_to == 1


async def test_while_one_probe_is_in_flight_no_second_is_sent(
    opened: Relay, clock: ManualClock
) -> None:
    clock.advance_ms(10_000)
    results = await opened.publish_many(
        [{"subject": "agent.a", "payload": None, "sender": "agent.b"}] * 3
    )
    assert [result.delivered_to for result in results] == [1, 0, 0]


async def test_a_failed_probe_opens_the_breaker_again(
    opened: Relay, clock: ManualClock, moody: Moody
) -> None:
    clock.advance_ms(10_000)
    await send(opened)
    await opened.idle()
    assert moody.handled == 4
    assert (await send(opened)).retry_after_ms == 10_000


async def test_the_breaker_closes_after_enough_good_probes(
    opened: Relay, clock: ManualClock, moody: Moody
) -> None:
    clock.advance_ms(10_000)
    moody.fails = False
    states = []
    for _ in range(2):
        await send(opened)
        await opened.idle()
        states.append(state_of(opened))
    assert states == ["HALF_OPEN", "CLOSED"]


async def test_a_probe_that_the_budget_rejects_gives_its_slot_back(
    opened: Relay, clock: ManualClock
) -> None:
    clock.advance_ms(10_000)
    rejected = await send(opened, budget={"call_budget_remaining": 0})
    assert reasons(rejected) == [Reason.BUDGET_EXCEEDED]
    assert (await send(opened)).delivered_to == 1


async def test_a_half_open_breaker_counts_its_probes_only(start, clock: ManualClock) -> None:
    relay = await start(
        circuit_breaker=CircuitBreakerConfig(failure_threshold=1, cooldown_ms=1_000)
    )
    relay.register_endpoint("agent.a")
    began, may_end = asyncio.Event(), asyncio.Event()

    async def handle(envelope: Envelope) -> None:
        if envelope.payload == "fails":
            raise ValueError
        if envelope.payload == "old":
            began.set()
            await may_end.wait()

    for payload in ("fails", "old"):
        await send(relay, payload)
    relay.subscribe("agent.a", handle)
    await began.wait()
    clock.advance_ms(1_000)
    assert (await send(relay, "probe")).delivered_to == 1
    may_end.set()
    await relay.idle()
    assert relay.metrics().breakers["agent.a"].half_open_successes == 1


async def test_acknowledging_a_probe_counts_as_its_success_whoever_does(
    opened: Relay, clock: ManualClock
) -> None:
    clock.advance_ms(10_000)
    publishing = asyncio.ensure_future(send(opened))
    await asyncio.sleep(0)
    (probe,) = opened.metrics().breakers["agent.a"].probes
    await opened.ack("agent.a", probe)
    await publishing
    assert opened.metrics().breakers["agent.a"].half_open_successes == 1


async def test_storing_a_probe_without_a_handler_counts_as_its_success(
    opened: Relay, clock: ManualClock, moody: Moody
) -> None:
    moody.stop()
    clock.advance_ms(10_000)
    for _ in range(2):
        await send(opened)
    assert state_of(opened) == "CLOSED"


async def test_a_breaker_that_is_switched_off_never_opens(start, moody: Moody) -> None:
    relay = await start(circuit_breaker=CircuitBreakerConfig(enabled=False, failure_threshold=1))
    relay.register_endpoint("agent.a")
    relay.subscribe("agent.a", moody)
    for _ in range(5):
        assert (await send(relay)).delivered_to == 1
        await relay.idle()


async def test_every_move_of_the_breaker_is_in_the_journal(
    opened: Relay, clock: ManualClock, moody: Moody, data: Path
) -> None:
    clock.advance_ms(10_000)
    moody.fails = False
    for _ in range(2):
        await send(opened)
        await opened.idle()
    moves = [(event["before"], event["after"]) for event in events(data, "breaker")]
    assert moves == [("CLOSED", "OPEN"), ("OPEN", "HALF_OPEN"), ("HALF_OPEN", "CLOSED")]


def break_mailbox(endpoint: Endpoint) -> Path:
    """Replace a folder by a file, below which even root cannot write."""
    assert endpoint.maildir_path is not None
    folder = endpoint.maildir_path / "new"
    folder.rmdir()
    folder.write_bytes(b"")
    return folder


async def test_a_mailbox_that_cannot_be_written_opens_the_breaker(start) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    break_mailbox(relay.register_endpoint("agent.a"))
    results = [await send(relay) for _ in range(4)]
    assert [result.delivered_to for result in results] == [1, 1, 1, 0]
    assert reasons(results[3]) == [Reason.CIRCUIT_OPEN]


async def test_a_message_whose_file_could_not_be_written_is_not_lost(start) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    break_mailbox(relay.register_endpoint("agent.a"))
    await send(relay, "safe in the journal")
    assert payloads(await relay.lease("agent.a")) == ["safe in the journal"]


async def test_a_repaired_mailbox_closes_its_breaker(start, clock: ManualClock) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    obstacle = break_mailbox(relay.register_endpoint("agent.a"))
    for _ in range(3):
        await send(relay)
    obstacle.unlink()
    obstacle.mkdir()
    clock.advance_ms(10_000)
    for _ in range(2):
        assert (await send(relay)).delivered_to == 1
    assert state_of(relay) == "CLOSED"


async def test_a_probe_into_a_mailbox_still_broken_opens_the_breaker_again(
    start, clock: ManualClock
) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    break_mailbox(relay.register_endpoint("agent.a"))
    for _ in range(3):
        await send(relay)
    clock.advance_ms(10_000)
    probe, after = await send(relay), await send(relay)
    assert (probe.delivered_to, after.delivered_to) == (1, 0)
    assert state_of(relay) == "OPEN"
