"""Work that fails ends somewhere, with the last error that its consumer gave."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import HOUR_MS, UNLIMITED, events, send
from waypost import CircuitBreakerConfig, InvalidInput, Relay
from waypost.policy.redelivery import RedeliveryConfig
from waypost.testing import ManualClock

MINUTE_MS = 60_000
TWICE = RedeliveryConfig(max_deliveries=2)
BREAKERS_OFF = CircuitBreakerConfig(enabled=False)


async def fail_all(
    relay: Relay, clock: ManualClock, *errors: str, subject: str = "agent.a"
) -> None:
    """Lease and nack whatever is pending, once with each of `errors`."""
    for error in errors:
        for envelope in await relay.lease(subject):
            await relay.nack(subject, envelope.id, error=error)
        clock.advance_ms(MINUTE_MS)


async def reasons(relay: Relay) -> list[str]:
    return [one.reason for one in await relay.dead_letters()]


async def test_a_dead_letter_names_the_last_error_of_its_consumer(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay, "poison")
    await fail_all(relay, clock, "a", "b", "c", "d", "KeyError: 'user'")
    assert await reasons(relay) == ["max deliveries exceeded (5/5): KeyError: 'user'"]
    texts = [step.text for step in (await relay.explain(sent.message_id)).steps]
    assert "returned to the queue: nack: b" in texts
    assert texts[-1] == "dead letter: max deliveries exceeded (5/5): KeyError: 'user'"


async def test_a_nack_without_an_error_names_none(start: Start, clock: ManualClock) -> None:
    relay = await start(redelivery=TWICE)
    relay.register_endpoint("agent.a")
    await send(relay)
    await fail_all(relay, clock, "", "")
    assert await reasons(relay) == ["max deliveries exceeded (2/2)"]


async def test_the_last_error_survives_a_restart(start: Start, clock: ManualClock) -> None:
    relay = await start(redelivery=TWICE)
    relay.register_endpoint("agent.a")
    await send(relay)
    await fail_all(relay, clock, "first", "second")
    relay = await start(redelivery=TWICE)
    assert await reasons(relay) == ["max deliveries exceeded (2/2): second"]


async def test_an_error_is_one_printable_line_of_at_most_500_characters(
    start: Start, clock: ManualClock, data: Path
) -> None:
    relay = await start(redelivery=TWICE)
    relay.register_endpoint("agent.a")
    await send(relay)
    hostile = "\x1b[2J\n\u202eforged\ud800" + "x" * 1_000_000
    await fail_all(relay, clock, hostile, hostile)
    [reason] = await reasons(relay)
    error = reason.removeprefix("max deliveries exceeded (2/2): ")
    assert error.startswith(r"\x1b[2J\n\u202eforged\ud800xxx")
    assert len(error) == 500
    assert error.isprintable()
    [returned] = events(data, "returned")
    assert returned["reason"] == f"nack: {error}"


@pytest.mark.parametrize("error", [None, 5, b"bytes", ["list"]])
async def test_an_error_that_is_no_text_is_invalid(relay: Relay, error: object) -> None:
    sent = await send(relay)
    await relay.lease("agent.a")
    with pytest.raises(InvalidInput, match="error must be text or an exception"):
        await relay.nack("agent.a", sent.message_id, error=error)  # type: ignore[arg-type]


async def test_an_exception_can_be_the_error(start: Start, clock: ManualClock) -> None:
    relay = await start(redelivery=RedeliveryConfig(max_deliveries=1))
    relay.register_endpoint("agent.a")
    sent = await send(relay)
    await relay.lease("agent.a")
    await relay.nack("agent.a", sent.message_id, error=ValueError("no such user"))
    assert await reasons(relay) == ["max deliveries exceeded (1/1): ValueError: no such user"]


async def test_dead_letters_are_grouped_by_the_kind_of_their_reason(
    start: Start, clock: ManualClock
) -> None:
    relay = await start(
        redelivery=RedeliveryConfig(max_deliveries=1),
        rate_limit=UNLIMITED,
        circuit_breaker=BREAKERS_OFF,
    )
    relay.register_endpoint("agent.a")
    for number in range(3):
        await send(relay)
        await fail_all(relay, clock, f"row {number} is wrong")
    [group] = await relay.dead_letter_groups()
    assert (group.reason, group.count) == ("max deliveries exceeded (1/1)", 3)


async def test_one_failing_message_among_200_ends_alone_with_its_error(
    start: Start, clock: ManualClock, data: Path
) -> None:
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    for number in range(200):
        await send(relay, number)
    done, failed_ms = [], []
    for _ in range(60):
        for one in await relay.lease("agent.a", limit=20):
            if one.payload == 70:
                failed_ms.append(clock() // 1000)
                await relay.nack("agent.a", one.id, error=ValueError("70 is too hard"))
            else:
                await relay.ack("agent.a", one.id)
                done.append(one.payload)
        clock.advance_ms(250)
    assert done == [number for number in range(200) if number != 70]
    [dead] = await relay.dead_letters()
    assert dead.envelope.payload == 70
    assert dead.reason == "max deliveries exceeded (5/5): ValueError: 70 is too hard"
    waits = [after - before for before, after in pairwise(failed_ms)]
    assert len(waits) == 4
    assert waits[0] < waits[1] < waits[2] < waits[3]
    written = events(data, "leased", "returned", "failed")
    assert len([one for one in written if one["id"] == dead.envelope.id]) == 10
    assert len(written) == 199 + 10


async def test_the_history_folds_a_thousand_attempts_into_a_line(
    start: Start, clock: ManualClock
) -> None:
    endless = RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1)
    relay = await start(redelivery=endless, circuit_breaker=BREAKERS_OFF, default_ttl_ms=HOUR_MS)
    relay.register_endpoint("agent.a")
    sent = await send(relay)
    for number in range(1000):
        [one] = await relay.lease("agent.a")
        await relay.nack("agent.a", one.id, error=f"error {number}")
        clock.advance_ms(1_000)
    await relay.lease("agent.a")
    steps = (await relay.explain(sent.message_id)).steps
    assert [step.kind for step in steps if step.kind != "check"] == [
        "accepted",
        "returned",
        "leased",
    ]
    assert steps[-2].text == (
        "delivered 1,000 times between 2023-11-14 22:13:20 UTC and 2023-11-14 22:29:59 UTC;"
        " last error: error 999"
    )
    assert steps[-1].text == "delivered, attempt 1001, via lease"


async def test_the_history_shows_a_few_attempts_one_by_one(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay)
    await fail_all(relay, clock, "a", "b", "c", "d", "e")
    kinds = [step.kind for step in (await relay.explain(sent.message_id)).steps]
    assert kinds.count("leased") == 5


async def test_attempts_at_several_endpoints_are_folded_for_each(
    start: Start, clock: ManualClock
) -> None:
    endless = RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1)
    relay = await start(redelivery=endless, circuit_breaker=BREAKERS_OFF)
    for subject in ("agent.a", "agent.c"):
        relay.register_endpoint(subject)
    sent = await send(relay, to="agent.*")
    for number in range(20):
        for subject in ("agent.a", "agent.c"):
            if subject == "agent.a" or number < 10:
                await relay.lease(subject)
                await relay.nack(subject, sent.message_id)
        clock.advance_ms(1_000)
    await relay.lease("agent.c")
    await relay.ack("agent.c", sent.message_id)
    steps = [one for one in (await relay.explain(sent.message_id)).steps if one.kind != "check"]
    assert [(one.endpoint, one.kind) for one in steps] == [
        ("agent.a", "accepted"),
        ("agent.c", "accepted"),
        ("agent.c", "returned"),
        ("agent.a", "returned"),
        ("agent.c", "leased"),
        ("agent.c", "acked"),
    ]
    assert steps[3].text.startswith("delivered 20 times between")
    assert "last error" not in steps[3].text
