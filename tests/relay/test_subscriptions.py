"""Subscriptions: patterns with handlers, and the file that lists them."""

import json
from pathlib import Path

import pytest

from tests.relay.observing import read, send, write
from waypost import Envelope, InvalidInput, InvalidSubject, Relay
from waypost.relay.delivery import subscriptions
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant


def ignore(envelope: Envelope) -> None:
    """A handler that does nothing."""


def patterns(relay: Relay) -> list[tuple[str, bool]]:
    return [(one.pattern, one.live) for one in relay.list_subscriptions()]


@pytest.fixture
def kept(data: Path) -> Path:
    return data / "subscriptions.json"


async def test_subscriptions_are_listed_in_the_order_they_were_made(
    relay: Relay, clock: ManualClock
) -> None:
    relay.subscribe("agent.>", ignore)
    relay.subscribe("agent.a", ignore)
    assert patterns(relay) == [("agent.>", True), ("agent.a", True)]
    assert relay.list_subscriptions()[0].created_at == instant(clock())


@pytest.mark.parametrize(
    ("pattern", "hears"),
    [("agent.a", True), ("agent.*", True), (">", True), ("*.a", True), ("agent.b", False)],
)
async def test_a_handler_gets_messages_of_endpoints_that_match_its_pattern(
    relay: Relay, pattern: str, hears: bool
) -> None:
    seen: list[Envelope] = []
    relay.subscribe(pattern, seen.append)
    await send(relay)
    await relay.idle()
    assert bool(seen) is hears


async def test_a_handler_that_was_subscribed_twice_is_called_twice(relay: Relay) -> None:
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    relay.subscribe("agent.*", seen.append)
    await send(relay)
    await relay.idle()
    assert len(seen) == 2


@pytest.mark.parametrize("pattern", ["", "agent.>.a", "a..b", "agent*", None])
async def test_subscribing_to_an_invalid_pattern_fails(relay: Relay, pattern: str) -> None:
    with pytest.raises(InvalidSubject):
        relay.subscribe(pattern, ignore)


async def test_patterns_are_written_to_a_file(relay: Relay, kept: Path) -> None:
    relay.subscribe("agent.>", ignore)
    relay.sweep()
    (entry,) = json.loads(read(kept))
    assert entry["pattern"] == "agent.>"
    assert entry["created_at"] == "2023-11-14T22:13:20Z"


async def test_patterns_of_an_earlier_run_are_listed_without_a_handler(relay: Relay, start) -> None:
    relay.subscribe("agent.>", ignore)
    again = await start()
    assert patterns(again) == [("agent.>", False)]


async def test_a_pattern_subscribed_again_is_listed_once(relay: Relay, start) -> None:
    relay.subscribe("agent.>", ignore)
    relay.subscribe("other.*", ignore)
    again = await start()
    again.subscribe("agent.>", ignore)
    assert patterns(again) == [("agent.>", True), ("other.*", False)]


async def test_an_ended_subscription_is_forgotten(relay: Relay, start) -> None:
    relay.subscribe("agent.>", ignore)()
    again = await start()
    assert patterns(again) == []


async def test_ending_a_subscription_taken_up_again_forgets_it_for_good(
    relay: Relay, start
) -> None:
    relay.subscribe("agent.>", ignore)
    again = await start()
    again.subscribe("agent.>", ignore)()
    assert patterns(again) == []
    assert patterns(await start()) == []


@pytest.mark.parametrize("content", ["not json", "{}", '[{"pattern": 5}]', ""])
async def test_an_unreadable_file_does_not_prevent_the_start(
    start, kept: Path, content: str
) -> None:
    write(kept, content)
    relay = await start()
    assert patterns(relay) == []


async def test_closing_detaches_every_handler(relay: Relay, start) -> None:
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    again = await start()
    await send(again)
    await again.idle()
    assert seen == []


async def test_there_is_a_bound_on_subscriptions(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "subscriptions_max", 1)
    stop = relay.subscribe("agent.a", ignore)
    with pytest.raises(InvalidInput, match="at most 1 are allowed"):
        relay.subscribe("agent.b", ignore)
    stop()
    relay.subscribe("agent.b", ignore)
