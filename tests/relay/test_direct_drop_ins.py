"""Files put straight into `new/`, or before their endpoint existed: the sweep finds them."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.relay.observing import UNLIMITED, events, files, payloads, pending, send, write
from waypost import AccessRule, CircuitBreakerConfig, Endpoint, Relay
from waypost.testing import ManualClock

DROPPED = {"sender": "agent.b", "payload": {"n": 1}}


def put(endpoint: Endpoint, name: str, content: object, clock: ManualClock) -> Path:
    """Write a file where the relay looks for messages, without `tmp/`."""
    assert endpoint.maildir_path is not None
    path = endpoint.maildir_path / "new" / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path, ns=(clock() * 1000, clock() * 1000))
    return path


async def swept(relay: Relay) -> None:
    """Sweep, and wait for the search that the sweep begins."""
    relay.sweep()
    await eventually(lambda: not relay._runtime.drop_in_search.busy, "the end of the search")
    await relay.idle()


@pytest.fixture
async def relay(start) -> Relay:
    opened: Relay = await start(watch_files=True, rate_limit=UNLIMITED)
    return opened


async def test_a_file_put_straight_into_new_is_taken_at_a_sweep(
    relay: Relay, clock: ManualClock
) -> None:
    endpoint = relay.register_endpoint("agent.a")
    for number in range(3):
        put(endpoint, f"drop-{number}", {**DROPPED, "payload": number}, clock)
        relay.sweep()
        await eventually(lambda number=number: pending(relay) == number + 1, "the message")
    await relay.idle()
    assert payloads(await relay.lease("agent.a")) == [0, 1, 2]


async def test_a_file_from_before_the_registration_is_taken(
    relay: Relay, data: Path, clock: ManualClock
) -> None:
    hash_ = hashlib.sha256(b"agent.late").hexdigest()[:12]
    write(data / "mailboxes" / hash_ / "new" / "early", DROPPED)
    await swept(relay)
    assert relay.metrics().total_messages == 0
    relay.register_endpoint("agent.late")
    relay.sweep()
    await eventually(lambda: pending(relay, "agent.late") == 1, "the message")


async def test_a_file_whose_message_was_acknowledged_before_is_removed(
    relay: Relay, data: Path, clock: ManualClock
) -> None:
    endpoint = relay.register_endpoint("agent.a")
    for _ in range(2):
        put(endpoint, "same", DROPPED, clock)
        await swept(relay)
        await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a")])
        await relay.idle()
        assert files(endpoint)["new"] == []
    assert len(events(data, "accepted")) == 1


async def test_such_a_file_passes_the_same_checks_as_any_publish(
    relay: Relay, clock: ManualClock
) -> None:
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    endpoint = relay.register_endpoint("agent.a")
    put(endpoint, "forbidden", DROPPED, clock)
    await swept(relay)
    assert (files(endpoint)["new"], files(endpoint)["failed"]) == ([], ["forbidden"])


async def test_a_half_written_file_is_left_alone_until_it_is_complete(
    relay: Relay, clock: ManualClock
) -> None:
    endpoint = relay.register_endpoint("agent.a")
    text = json.dumps({**DROPPED, "payload": "x" * 5000})
    with put(endpoint, "slow", text[:100], clock).open("a") as writer:
        for begin in range(100, len(text), 1000):
            await swept(relay)
            assert files(endpoint) == {"cur": [], "failed": [], "new": ["slow"], "tmp": []}
            clock.advance_ms(50_000)
            writer.write(text[begin : begin + 1000])
            writer.flush()
            os.utime(writer.name, ns=(clock() * 1000, clock() * 1000))
    await swept(relay)
    assert payloads(await relay.lease("agent.a")) == ["x" * 5000]


async def test_an_incomplete_file_is_rejected_once_it_has_not_changed_for_a_minute(
    relay: Relay, clock: ManualClock
) -> None:
    endpoint = relay.register_endpoint("agent.a")
    put(endpoint, "broken", '{"sender": "agent.b"', clock)
    await swept(relay)
    clock.advance_ms(59_000)
    await swept(relay)
    assert files(endpoint)["new"] == ["broken"]
    clock.advance_ms(1_000)
    await swept(relay)
    assert (files(endpoint)["new"], files(endpoint)["failed"]) == ([], ["broken"])


async def test_a_half_written_file_at_the_start_is_left_alone(
    relay: Relay, start, clock: ManualClock
) -> None:
    endpoint = relay.register_endpoint("agent.a")
    await relay.close()
    path = put(endpoint, "slow", '{"sender": "agent.b", ', clock)
    again: Relay = await start(watch_files=True)
    assert files(endpoint)["new"] == ["slow"]
    with path.open("a") as writer:
        writer.write('"payload": 1}')
    await swept(again)
    assert payloads(await again.lease("agent.a")) == [1]


async def test_the_relays_own_files_are_never_taken_whatever_happens_to_them(
    start, data: Path, clock: ManualClock
) -> None:
    no_breaker = CircuitBreakerConfig(enabled=False)
    relay: Relay = await start(watch_files=True, rate_limit=UNLIMITED, circuit_breaker=no_breaker)
    count = 0
    for round_ in range(30):
        relay.register_endpoint("agent.a")
        for number in range(6):
            await send(relay, number, budget={"ttl": clock() // 1000 + 1000 * number})
            count += 1
        relay.sweep()
        leased = await relay.lease("agent.a", limit=3)
        relay.sweep()
        relay.claims.ack("agent.a", [one.id for one in leased[:1]])
        relay.claims.nack("agent.a", [one.id for one in leased[1:]], 0.0)
        relay.sweep()
        if round_ % 3 == 0:
            stop = relay.subscribe("agent.a", lambda envelope: 1 / 0)
            await event_loop_turns()
            stop()
        relay.sweep()
        if round_ % 5 == 0:
            await relay.redrive([one.envelope.id for one in (await relay.dead_letters())[:2]])
        if round_ % 7 == 0:
            relay.unregister_endpoint("agent.a")
        clock.advance_ms(2_000)
        await swept(relay)
    await relay.purge_dead_letters()
    await swept(relay)
    assert len(events(data, "accepted")) == count
    assert events(data, "rejected") == []
