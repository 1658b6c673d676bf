"""A journal to damage, and the state a relay must recover from it."""

from pathlib import Path
from typing import Any

from tests.faults import plain_journal
from waypost import RateLimitConfig, Relay, Settings
from waypost.testing import ManualClock

SETTINGS = Settings(
    storage="journal",
    durability="async",  # a cut file is cut whether or not it was synced
    watch_files=False,
    rate_limit=RateLimitConfig(enabled=False),
)
START_US = 1_700_000_000_000_000


async def write_history(data: Path, settings: Settings = SETTINGS) -> None:
    """Write a journal of about thirty batches with every kind of message event."""
    async with Relay(data, settings=settings, clock=ManualClock(START_US)) as relay:
        for subject in ("agent.a", "agent.b"):
            relay.register_endpoint(subject)
        for n in range(8):
            await relay.publish("agent.*", {"n": n}, sender="agent.x")
            (leased,) = await relay.lease("agent.a", limit=1)
            await (relay.nack if n % 4 == 3 else relay.ack)("agent.a", leased.id)
        for n in range(3):
            await relay.publish("agent.b", {"one of": n}, sender="agent.y")
        await relay.publish("agent.a", "y" * 5_000, sender="agent.x")
        await relay.publish("agent.a", 1, sender="agent.x", budget={"call_budget_remaining": 0})
        dead = await relay.dead_letters()
        await relay.redrive(dead[0].envelope.id)
        await relay.publish("agent.a", {"n": "last"}, sender="agent.x", message_id="last")


def only_segment(data: Path) -> Path:
    (found,) = plain_journal.segments(data)
    return found


def state_of(relay: Relay) -> dict[str, Any]:
    """Return a relay's messages in the form of the plain journal."""
    folders = {0: "new", 1: "cur", 2: "failed"}
    mailboxes = relay._runtime.ledger.state.mailboxes.values()
    return {
        "order": {box.subject: list(box.live) for box in mailboxes if box.live},
        "status": {
            box.subject: {
                one.id: folders[one.state] for one in (*box.live.values(), *box.dead.values())
            }
            for box in mailboxes
            if box.live or box.dead
        },
        "endpoints": {one.subject for one in relay.list_endpoints()},
    }


def as_state(total: plain_journal.Sum) -> dict[str, Any]:
    return {
        "order": total.order(),
        "status": {
            name: {one: folder.replace("cur", "new") for one, folder in names.items()}
            for name, names in total.status().items()
        },
        "endpoints": set(total.endpoints),
    }


async def assert_goes_on(data: Path, expected: plain_journal.Sum) -> None:
    """Assert that a relay opens with `expected`, accepts a publish, and opens again."""
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay) == as_state(expected)
        relay.register_endpoint("agent.new")
        result = await relay.publish("agent.new", "after the fall", sender="agent.x")
        assert result.delivered_to == 1
        before = state_of(relay)
    assert before == as_state(plain_journal.add_up_directory(data))
    async with Relay(data, settings=SETTINGS, clock=ManualClock(START_US)) as relay:
        assert state_of(relay) == before
        assert relay._runtime.report.bytes_cut == 0
        (kept,) = await relay.lease("agent.new")
        assert kept.payload == "after the fall"
    plain_journal.assert_chained(data)
    plain_journal.assert_index_is_right(data)


def forget_index(data: Path) -> None:
    for path in data.glob("index.db*"):
        path.unlink()
