"""Subscriptions: patterns with handlers, and the file that lists them."""

import json
import os
from pathlib import Path

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.relay.observing import begun, read, send, write
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


async def test_patterns_are_written_to_a_file_at_once(relay: Relay, kept: Path) -> None:
    stop = relay.subscribe("agent.>", ignore)
    await eventually(lambda: read(kept), "the file, without a sweep")
    (entry,) = json.loads(read(kept))
    assert entry["pattern"] == "agent.>"
    assert entry["created_at"] == "2023-11-14T22:13:20Z"
    stop()
    await eventually(lambda: json.loads(read(kept)) == [], "the file without the pattern")


async def test_each_subscription_has_an_id_also_in_the_file(
    relay: Relay, start, kept: Path
) -> None:
    relay.subscribe("agent.>", ignore)
    relay.subscribe("agent.>", ignore)
    first, second = relay.list_subscriptions()
    assert first.id < second.id
    assert len(first.id) == 26
    await eventually(lambda: read(kept), "the file")
    assert [one["id"] for one in json.loads(read(kept))] == [first.id, second.id]
    (remembered,) = (await start()).list_subscriptions()
    assert remembered.id in (first.id, second.id)


async def test_a_file_of_an_older_version_gets_ids(start, kept: Path) -> None:
    write(kept, [{"pattern": "agent.>", "created_at": "2023-11-14T22:13:20Z"}])
    (remembered,) = (await start()).list_subscriptions()
    assert len(remembered.id) == 26


async def test_many_subscriptions_share_a_few_writes(relay: Relay, kept: Path) -> None:
    written: set[int] = set()

    def count() -> int:
        if kept.exists():
            written.add(kept.stat().st_mtime_ns)
        return len(json.loads(read(kept) or "[]"))

    for number in range(2000):
        relay.subscribe(f"agent.a{number}", ignore)
        if not number % 10:
            await event_loop_turns(1)
            count()
    await eventually(lambda: count() == 2000, "all patterns in the file")
    assert len(written) < 100


async def test_a_file_that_could_not_be_written_is_written_by_the_next_sweep(
    relay: Relay, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkdir(kept)
    relay.subscribe("agent.>", ignore)
    await eventually(lambda: "subscriptions.json not written" in caplog.text, "the warning")
    os.rmdir(kept)
    relay.sweep()
    await eventually(lambda: read(kept), "the file")


async def test_the_subscription_of_a_request_is_not_listed(relay: Relay, kept: Path) -> None:
    asked = await begun(relay, relay.request("agent.a", 1, sender="agent.b"))
    assert patterns(relay) == []
    (question,) = await relay.lease("agent.a")
    await relay.publish(question.reply_to, 2, sender="agent.a")
    assert (await asked).payload == 2
    assert read(kept) == ""


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


@pytest.mark.parametrize("content", ["not json", "{}", '[{"pattern": 5}]', "", "[" * 5000])
async def test_an_unreadable_file_does_not_prevent_the_start(
    start, kept: Path, content: str
) -> None:
    write(kept, content)
    relay = await start()
    assert patterns(relay) == []


async def test_a_pipe_in_place_of_the_file_is_not_waited_for(start, kept: Path) -> None:
    kept.parent.mkdir(mode=0o700)
    os.mkfifo(kept)
    assert patterns(await start()) == []


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
